"""Modules of XLA as jax2tf wrote them, so that JAX need not be there: compressed, in base 85."""

from __future__ import annotations

import base64
import zlib

__all__ = ["LAPACK", "OPEN_BATCH", "PLAIN"]


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b85decode(text))


#: jnp.tanh for any number of rows, which it checks.
OPEN_BATCH = _unpacked(
    "c-n<i;cnYD5GF%kRYMa5K`@NKV9me?93iz7FAajUb%HENwrnlZt|*3~C<IxiZFQ2UiIkge*t6_^|MnU7JbQ$VlG6skevAUe?~X@)-`z>ipZ)!#"
    "^-4w4lz;c^DqM~I@qxdG@BlEln3%+|-EOZx819lkt1g}xwrvhf+cfp8pT2GO*2vY99GN#*54U-D>yY)pVA{kzw7W*nFl=Mv0qHvgI&=VCVwjdq"
    "w6*DA3_YOGr(FzNv<EPt{VjlzVOUnaLAQsnt?{OHKz9L#G{E4|eGI#V9R30$`UFEju!RY^q+>!(25pP{@SN_`1A0i02)sVA$WK4hCv-Bf=!u6h"
    "j)u5zv@t@+b#U7-fS#H_&u9PyxADe?2k4)h;g}w_wMqhQ2MoRRsE0ea^%vlmI@V}?(nrV(OpMlom_5=)?QbyX<Ss@AF|@3UahtdR#6CYdF!c@2"
    "1-1x)E_Mr(`lM~Nc6B^hW(OG;n>81KmPg<o!GO`nug=N$_Z;wamACe{sL}7ZeQ>wEBgg4?N1IN^u}x=MC8<hsv|6SDWnxyP9L=jd*6l?lS5=wU"
    "NJaTFTz!pVkxPwL?OSja&XSDhG7)(wlizsljYU>O<r-E}i7bqxG;PeA^{G^|BtJ&)qHDjBT!wNP6+A3N`XLi#u}ox!GOfnXt1Q%asYGc4dFv~A"
    "ktT5@(Yr*2wK8;F!<`y>LF0J3&gA&kkM2s<>JcwXQHB|pGSb#sMI<FJYd#ddFQcO1vry{{`E?;m6=spHRIR(@vPxB$<a2@67&UuEHPzCZkVPt{"
    "Q5t@(7@DG@OjeQN=rS)V#Tq`zW`gBHu`E*YlBp$Uw{?g=$H;=m$y}#g3-j6ewYC+Xu~n2-oE=Ztn9W7WzGSF3%B22H*>F1a*=w2Pi{|dRNK^5?"
    "w*HSrK4ww5kZ<<h`pq_*u$}2c_Q><u)l}(JHT{42^eN4#V}IZKgUw5k-MzHgysPvMi3V(^IqW@TK6{b!NOC4QXG^6D`8Wt>B9?w#-5Fm6JP%S`"
    "PpN`+dxF~!$zQ509W?gnOG`&h!)2pD=g!%T>r7JVBXs}Lg&{W2zdgNrNn*lbkvN(7bs{H|2{|)gy*WL5OTvEvV+2$N"
)
#: jnp.tanh of one shape.
PLAIN = _unpacked(
    "c-lpfZ)@8y5XN=6+_WH!FeVrigb5*}W+ZJkLMi<-#$fD4OS|<07^iiKiY*&k4(*5SXXsa`+`cH{;JM!&&)w<j^7X%WYqM>U|Gm6U_v_VqvpQlB"
    "5zq)wAeTXi*>3?$E~S_WDTIsu#ZpY9z|avHI4VK`BqZ`6<b#*kM;facdB}w)(Ph#HMm_}&hd`m45Jf7U5-mCRJTp-91x=ieyp8%sq!151m~q67"
    "hsP%>R#P=o^8^5XEdWL^7$oSAoH5d9cunxnF+My;AiM$O!vsm77&H14xfX<;;1^d0*5JZjFdYXm1@q*@AN#%({<hPF)rReNMa9bMzAJL}(3v~;"
    "E6iqQm+rr_CbwN<dUDp<du=Y*WA?P_+PqEMT~_C5T@}w|)zmxPmaKG6E7O%}oi$clU77ZiHF;g=yR2o8+NQlfd+OyuFO$P}aQ3mq#V3Cs*W_(i"
    "*i@T`ihXESW^VDi+d4<~HR7}Yv0VQ+J;$GKpe17D"
)
#: jnp.linalg.cholesky, which JAX hands to LAPACK.
LAPACK = _unpacked(
    "c-n<kkBj429nYKZeCJ&VA;eJ1P##GwLpRK|*;<BWZf<tmU8du*yUdNtx-82P(j@KVCQWilI=g$vafpbBh=_=Yh@2uKhlq%Xh^UBvkAH%GlXhme"
    "Rq(ZW@B91n{qdSUdibxes*g)=9EV?dc<Npb`h&gxO^FSWVTXYNZOv%5%uaXL8QwZLx_9ybzPRzvedcOhtCym66ird8M^j8qY1LfoN>Y6cdSFVX"
    "P9-^2(ppB#sCTnosZl#NwWgsssb*FhhKdGz2Zm;7obx6(hWwz}G7N4Q!vmwKZCt)3hG;grJ#in!0g4?I`=|qASKLG3&Fz*ZG_-Zba2I>%hz{TY"
    "hr-@P?CD%plMUevaF6J1bq{ZeTZsF3fQNub>7Ae95#GUj;so&+PsAg{`{E4nfp`M=2;kXY@Kn4HcxLV}Lu0_qo-Qqy%vA>Pv3P8D+iWS@Sf1jE"
    "xjR@FUM-FQQKzlKC!dO^;+c3}A$%)R;oIL4uJAe?;hU;lS=PtjJ~g>q#WLlEkjooaI_b;i_CQ+0xx!W9vtNkNupcTQrpSO7VF>Ws1~A3|i;y#O"
    "cwNmKan|!TG$iOsDk25N83L2p#)i$Me=nCTH*G-OX1Wb39Zk_<Hp;Rt6R+8DZKxY7UIxvP{7|Od21b^$)+QH0(Zm~WZ+ambq}8hMhRux4pKl>M"
    "g9hW9A8k=$>U#iua|%ieWC`z5eAyhGa*%;3qsKDP^g%y<{!~GZ?GdPSk&rbv0V+?8Z%z=NeU7@)CTB$l74I^m+MxlQ_9n=*Z&x%SsN17GK@gyA"
    "Re?Z<Eg3j4K9V^oyrHV{NH$5MHCv>i)VE=aEi71NAyjoK&`;Q58?nV(W_u};N6ds4DqUs7I^f`rz3SYPWir`;0q#1hnqdXZDqz01s@bnKT`+NQ"
    "V2}p+VdqxkuEC)pMygF!Dpf5FymODFyU<WZ$1?2U@d<44MI2tmc~HgSJ&JSx(W>UG)>PQ|*w}hN2&YF+nwttdrSTw>F28W`wXGdRN1NUoZ5Xx%"
    "H=UzS*WTON890W(){ece>pi>CYUmA9)0_L|c2iUI@jQylD3LDD<5ZfZ!8{J7JS@(=ETngu<flnddP%vYeXk4?dMY+}m3XtrcgK0^1-@65Zj`t|"
    "G+UU?GB2;qCiBFvPA>>*&Acennd^ITT(LzMhkhMBN=vUg^RS%fNkx^pmlRoAEYPCMD5$Cbg*Oe$iVTw?N)xw;K3XKd1bMe8gDANzec-+9&x^2d"
    "7v*JX{A!lw*?CmVq#4!UPv$e1@-Cy2!W6G%d6>l!K}sJ)rR$%kaadfulDvw&amCuwyNmYSUKKmn_N(IS>el4cr!@(cE=5TY`ILD&Stg%mAq5DQ"
    "Nsc}LB1{68Ml^}0YyMSd*F@8G)b*yWsh49)q}3)<-=#3m)7+hfMd1;*NX{#YFt2(jxi4}r%fi5=-n-$;EX_-I=Fxqthd~!@9#@c)R9etdt<2_Q"
    ">UV82jnlCgyI1#68cSIoUD6el<{91C*vqJNml|2-6L&I+r29!WFReO{!U|F=NlR<ymHxR^o`=@!nfq5ZMHc$egvMJX+_#Qj5?_Xab?L?P(7JtS"
    "4XjC;Ti2D7B9E%SeXBd}_N^yHluYZ`lQfRg7ZvyaP>OdfFP|3AZ@%BJ)z+bPWBj)DCHmTZ>vUXF6DWiKh9pM<CG(GOeqv4Xbha9|R<0(yf<uIL"
    "qjt96w))n4ap)DHMSoz{d0A$~JB|~ie$lV`9)y=pm^d+Yx+tB+<eb;PoBnw@i#s*nyPkHhz6(X20hJ$GK}eOvMPGXBGY5~D^5WIS*S`UO1`nrm"
    "{jVSX-T#O0`!G|!`Q3}z_u%{R1Nb5Q2!0GdfuC~Mb@g9<_$&X{pa14}IQ>2UgX{7?x-PizC!V_Qe*n}qO)C"
)
