"""Other servers on the digits model, each as its own documents would have it, with the batch written by hand.

They speak the one form of request that the driver sends, so that all of them are asked and checked alike.
"""
