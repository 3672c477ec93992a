r"""Labeled pairs for the math grader: answer, reference, and whether the answer is right.

Written by hand for this project. Each line is a pair ``answer ~ reference`` under a heading that describes
the pairs; RIGHT and WRONG give the label.
"""

from __future__ import annotations

_RIGHT = r"""
# numbers
5 ~ 5
05 ~ 5
+5 ~ 5
-5 ~ -5
5.0 ~ 5
5.50 ~ 5.5
.5 ~ 0.5
-0 ~ 0
0.0 ~ 0
1,000 ~ 1000
1000 ~ 1,000
12,345,678 ~ 12345678
1{,}234 ~ 1234
1 000 000 ~ 1000000
3.14 ~ 3.140
100000000000000000000001 ~ 100000000000000000000001
$42$ ~ 42
\$42 ~ 42
42. ~ 42
\(42\) ~ 42
{42} ~ 42
(42) ~ 42
1e3 ~ 1000
3.2 \times 10^5 ~ 320000
3.2\cdot 10^{5} ~ 320000
5 \times 10^{-3} ~ 0.005
0.\overline{3} ~ \frac{1}{3}
0.1\overline{6} ~ 1/6
0.333333 ~ \frac{1}{3}
0.6666667 ~ \frac{2}{3}
3.14159265 ~ \pi
1.41421356 ~ \sqrt{2}
\frac{1}{3} ~ 0.3333333
# fractions
\frac{1}{2} ~ 0.5
\frac12 ~ 1/2
\dfrac{3}{4} ~ \frac{3}{4}
\tfrac{3}{4} ~ 0.75
\frac{2}{4} ~ \frac{1}{2}
-\frac{1}{2} ~ \frac{-1}{2}
\frac{1}{-2} ~ -\frac{1}{2}
1/2 ~ \frac{1}{2}
-3/4 ~ -0.75
2\frac{1}{2} ~ \frac{5}{2}
2 1/2 ~ 2.5
-2\frac{1}{2} ~ -2.5
\frac{1}{2}/3 ~ 1/6
\frac{7}{1} ~ 7
\frac{10}{4} ~ 2.5
22/7 ~ \frac{22}{7}
\frac{\pi}{2} ~ \pi/2
\frac{1}{\sqrt{2}} ~ \frac{\sqrt{2}}{2}
\cfrac{5}{8} ~ 0.625
# roots and powers
\sqrt{4} ~ 2
\sqrt{8} ~ 2\sqrt{2}
\sqrt 2 ~ \sqrt{2}
\sqrt2 ~ \sqrt{2}
sqrt(2) ~ \sqrt{2}
2\sqrt{3} ~ \sqrt{12}
\sqrt[3]{27} ~ 3
\sqrt[3]{-8} ~ -2
8^{1/3} ~ 2
2^{10} ~ 1024
2^10 ~ 1024
2**10 ~ 1024
4^{1/2} ~ 2
\frac{\sqrt{3}}{3} ~ \frac{1}{\sqrt{3}}
(1+\sqrt{5})/2 ~ \frac{1+\sqrt{5}}{2}
\sqrt{3}+\sqrt{2} ~ \sqrt{2}+\sqrt{3}
\sqrt{\frac{1}{4}} ~ \frac{1}{2}
\sqrt{x^2+2x+1+1} ~ \sqrt{x^2+2x+2}
10^{-2} ~ 0.01
e^{2} ~ e^2
# expressions with variables
x+1 ~ 1+x
2x ~ x+x
2x ~ 2 \cdot x
2*x ~ 2x
x(x+1) ~ x^2+x
(x+1)(x-1) ~ x^2-1
x^2+2x+1 ~ (x+1)^2
(a+b)^2 ~ a^2+2ab+b^2
\frac{x^2-1}{x-1} ~ x+1
\frac{x}{2} ~ 0.5x
\frac{1}{2}x ~ \frac{x}{2}
3xy ~ 3yx
-(x-1) ~ 1-x
x^{-1} ~ \frac{1}{x}
n(n+1)/2 ~ \frac{n(n+1)}{2}
\frac{n^2+n}{2} ~ \frac{n(n+1)}{2}
a_1+a_2 ~ a_2+a_1
2\pi r ~ 2r\pi
\alpha+\beta ~ \beta+\alpha
x^2y ~ yx^2
4(x+2) ~ 4x+8
1-\frac{1}{n} ~ \frac{n-1}{n}
x\left(x+1\right) ~ x(x+1)
2^{n+1} ~ 2 \cdot 2^n
# functions
\sin^2 x + \cos^2 x ~ 1
\sin(30^\circ) ~ \frac{1}{2}
\cos 60^\circ ~ 0.5
\sin \frac{\pi}{6} ~ \frac{1}{2}
\tan(\pi/4) ~ 1
\ln e ~ 1
\ln(e^2) ~ 2
\log_2 8 ~ 3
\log_{10} 100 ~ 2
\ln 2+\ln 3 ~ \ln 6
2\sin x\cos x ~ \sin 2x
5! ~ 120
\binom{5}{2} ~ 10
|-3| ~ 3
\lfloor 3.7 \rfloor ~ 3
\lceil 3.2 \rceil ~ 4
\arctan 1 ~ \frac{\pi}{4}
\frac{\sin x}{\cos x} ~ \tan x
e^{\ln 5} ~ 5
e^{i\pi} ~ -1
# complex numbers
3+4i ~ 4i+3
(1+i)^2 ~ 2i
i^2 ~ -1
\frac{1}{i} ~ -i
# percent
50\% ~ 50
50\% ~ 0.5
50 ~ 50\%
0.5 ~ 50\%
50% ~ 50\%
12.5\% ~ 12.5
33\% ~ 33 \%
# units
10 cm ~ 10
10\text{ cm} ~ 10
10 ~ 10\text{ cm}
10\,\mathrm{cm} ~ 10 cm
10 \text{ centimeters} ~ 10 cm
1 m ~ 100 cm
2 hours ~ 120 minutes
90^\circ ~ 90
90 ~ 90^{\circ}
90° ~ 90^\circ
45 degrees ~ 45^\circ
5 apples ~ 5
5 \text{ apples} ~ 5 \text{ apple}
15\text{ square inches} ~ 15
20\text{ cm}^2 ~ 20
\$5 ~ 5
3.5 \text{ kg} ~ 3500 g
60 \text{ km/h} ~ 60
7 days ~ 1 week
2 \text{ dollars} ~ 2
# assignments
x=5 ~ 5
x = 5 ~ 5
5 ~ x=5
y = 2x+1 ~ 2x+1
f(x)=x^2 ~ x^2
y=2x+1 ~ y-2x=1
2x+3y=6 ~ 3y+2x=6
x+y=1 ~ 2x+2y=2
x=\frac{1}{2} ~ 0.5
A = 12 ~ 12
# tuples and points
(1,2) ~ (1, 2)
(1,2) ~ \left(1,2\right)
(0.5, 3) ~ (\frac{1}{2}, 3)
(1,2,3) ~ (1,2,3)
(x,y)=(1,2) ~ (1,2)
(1,234) ~ (1, 234)
(-1,0) ~ (-1,0)
(\sqrt{4}, 1) ~ (2,1)
# sets and lists
\{1,2\} ~ \{2,1\}
\{1,2,3\} ~ {1,2,3}
\{1, 2\} ~ \{1,2,2\}
{1, 2} ~ \{1,2\}
1, 2 ~ 2, 1
1,2 ~ \{1,2\}
1 and 2 ~ 1, 2
1 or -1 ~ -1, 1
x=1, x=2 ~ 1,2
x=1 \text{ or } x=2 ~ 1,2
\pm 2 ~ 2, -2
x=\pm 2 ~ -2,2
1\pm\sqrt{2} ~ 1+\sqrt{2},1-\sqrt{2}
\{\frac{1}{2}\} ~ \{0.5\}
\emptyset ~ \{\}
\varnothing ~ \emptyset
\{1,3\} \cup \{2,4\} ~ \{1,2,3,4\}
\{(1,2),(3,4)\} ~ \{(3,4),(1,2)\}
(1,2),(3,4) ~ (3,4),(1,2)
\{a,b\} ~ \{b,a\}
# intervals
[1,2] ~ [1, 2]
[1,2) ~ \left[1,2\right)
(-\infty, 3) ~ (-\infty,3)
(-\infty,0)\cup(0,\infty) ~ (0,\infty)\cup(-\infty,0)
[0.5,1] ~ [\frac{1}{2},1]
x<2 ~ (-\infty,2)
x \ge 3 ~ [3,\infty)
1<x\le 2 ~ (1,2]
2 > x ~ x < 2
x>-1 ~ -1<x
x\in[1,2] ~ [1,2]
x \in (0, 5) ~ (0,5)
\mathbb{R} ~ (-\infty,\infty)
\text{all real numbers} ~ \mathbb{R}
3\geq x ~ x\leq 3
# matrices
\begin{pmatrix}1&2\\3&4\end{pmatrix} ~ \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} ~ \begin{bmatrix}1&2\\3&4\end{bmatrix}
\begin{pmatrix}0.5\\1\end{pmatrix} ~ \begin{pmatrix}\frac{1}{2}\\1\end{pmatrix}
\begin{bmatrix}x+1&0\\0&1\end{bmatrix} ~ \begin{bmatrix}1+x&0\\0&1\end{bmatrix}
\begin{pmatrix}1\\2\\\end{pmatrix} ~ \begin{pmatrix}1\\2\end{pmatrix}
\begin{array}{cc}1&2\end{array} ~ \begin{pmatrix}1&2\end{pmatrix}
# words and choices
\text{Monday} ~ Monday
monday ~ \text{Monday}
\text{yes} ~ Yes
\text{(A)} ~ A
(B) ~ B
C ~ \text{C}
\textbf{D} ~ D
\text{even} ~ even
east ~ \text{East}
\text{no solution} ~ no solution
# unicode
½ ~ \frac{1}{2}
2½ ~ 2.5
¾ ~ 0.75
−5 ~ -5
3×4 ~ 12
6÷3 ~ 2
π ~ \pi
2π ~ 2\pi
√2 ~ \sqrt{2}
x² ~ x^2
x³+1 ~ x^3+1
10⁻² ~ 0.01
∞ ~ \infty
x≤3 ~ x\le 3
[1,2)∪(3,4] ~ [1,2)\cup(3,4]
∅ ~ \emptyset
５ ~ 5
１２．５ ~ 12.5
90° ~ 90
±3 ~ 3,-3
3·4 ~ 12
θ+1 ~ \theta+1
# boxes and decoration
\boxed{5} ~ 5
\boxed{\boxed{7}} ~ 7
\fbox{3} ~ 3
$\frac{1}{2}$ ~ \frac{1}{2}
\[ x+1 \] ~ x+1
\displaystyle\frac{1}{2} ~ \frac{1}{2}
5\! ~ 5
5~ ~ 5
\,5\, ~ 5
\left(\frac{1}{2}\right) ~ \frac{1}{2}
# mathematics in groups of text
\text{42} ~ 42
42 ~ \text{42}
\mathbf{42} ~ 42
\textbf{42} ~ 42
\mathrm{42} ~ 42
42 ~ \mathrm{42}
\textbf{-3} ~ -3
\text{1,000} ~ 1000
\text{3/4} ~ 0.75
\text{5 cm} ~ 5
5 ~ \text{5 cm}
\text{5 cm} ~ 5 \text{ cm}
\text{25%} ~ 25
\text{(3, 4)} ~ (3,4)
\mathbf{(3, 4)} ~ (3,4)
\text{x = 5} ~ 5
3\mathrm{i} ~ 3i
3i ~ 3\mathrm{i}
\mathrm{e}^2 ~ e^2
\mathbf{x}+1 ~ x+1
5\text{m} ~ 5
5\text{ cm2} ~ 5
\text{Day 3} ~ \text{day 3}
\text{3 pm} ~ \text{3 PM}
# units with a stroke, percent in words, degrees of Celsius
5 \text{ km/h} ~ 5 km/h
5 km/h ~ 5 \text{ km/h}
5 m/s ~ 5 \text{ m/s}
5 \text{ m/s} ~ 5 m/s
5 m/s^2 ~ 5\text{ m/s}^2
25\text{ percent} ~ 25\%
25 percent ~ 25\%
100°C ~ 100
100 ~ 100°C
100^\circ\text{C} ~ 100
100°C ~ 100^\circ\text{C}
100°C ~ 100 degrees Celsius
100°C ~ 100^\circ
# powers of powers
2^3^2 ~ 512
2**3**2 ~ 512
e^-x^2 ~ e^{-x^2}
x^2y^3 ~ y^3x^2
e^-2x ~ xe^{-2}
# what only the symbolic grader knows
\int_0^1 2x\,dx ~ 1
\sum_{k=1}^{10} k ~ 55
# separators of thousands and currencies
10,\!080 ~ 10080
10080 ~ 10,\!080
32348 ~ \$32,\!348
11111111100 ~ 11,\! 111,\! 111,\! 100
-1\,027 ~ -1027
-1,\!027 ~ -1027
(10,\!080, 5) ~ (10080, 5)
12{,}500\text{ cm} ~ 12500
72€ ~ 72
€72 ~ 72
£72 ~ 72
£72 ~ 72 pounds
\$5 ~ 500 \text{ cents}
14, ~ 14
14; ~ 14
# fonts, colors, quotation marks, and labels
\boldsymbol{72} ~ 72
\bm{72} ~ 72
\bm{(1,2)} ~ (1,2)
\textcolor{red}{72} ~ 72
\color{red}{72} ~ 72
{\color{red}72} ~ 72
\underline{72} ~ 72
\Large{72} ~ 72
{\bf 72} ~ 72
72\,{\rm cm} ~ 72 \text{ cm}
**72** ~ 72
`72` ~ 72
"72" ~ 72
= 72 ~ 72
\approx 3.14159 ~ \pi
Answer: 72 ~ 72
The final answer is 72. ~ 72
{1 \over 2} ~ 0.5
√13 ~ \sqrt{13}
\sqrt13 ~ \sqrt{13}
90^{\text{o}} ~ 90
90^o ~ 90^\circ
90\degree ~ 90^\circ
# plus and minus in a set
-2, 1+\sqrt5, 1-\sqrt5 ~ \{1\pm\sqrt{5},-2\}
\{1\pm\sqrt{5},-2\} ~ -2, 1+\sqrt5, 1-\sqrt5
\pm 1, \pm 2 ~ -2, -1, 1, 2
# areas and volumes
864\text{ in}^2 ~ 864 \mbox{ inches}^2
864 \text{ square inches} ~ 864 \mbox{ inches}^2
5 sq cm ~ 5 cm^2
5 \text{ sq. cm} ~ 5\text{ cm}^2
5 cm^2 ~ 5\text{ cm}^2
5 cm² ~ 5\text{ square centimeters}
1 \text{ m}^2 ~ 10000 \text{ cm}^2
8 \text{ cubic feet} ~ 8\text{ ft}^3
60 mph ~ 60 \text{ miles per hour}
36 \text{ km/h} ~ 10 \text{ m/s}
# short words
\text{No} ~ No
NO ~ No
Yes, ~ Yes
\text{II} ~ II
II ~ \text{II}
\text{A, B, C} ~ A,B,C
\text{A, C, B} ~ A,B,C
\text{A and B} ~ A, B
# choices
(b) ~ B
\textbf{(C)}\ 14 ~ (C)
\textbf{(C) } 14 ~ C
C ~ \textbf{(C)}\ 14
14 ~ \textbf{(C)}\ 14
(C) 14 ~ \textbf{(C)}\ 14
Option C ~ C
option (c) ~ (C)
C) 14 ~ C
C. ~ C
\text{Answer: C} ~ C
# identities of whole numbers
\binom{n}{2} ~ \frac{n(n-1)}{2}
\frac{n(n-1)}{2} ~ \binom{n}{2}
\frac{(n+1)!}{n!} ~ n+1
n+1 ~ \frac{(n+1)!}{n!}
(-1)^{2n} ~ 1
\cos(n\pi) ~ (-1)^n
(-1)^{n+1} ~ -(-1)^n
# inequalities joined by "or", chains of equations
x<2 \text{ or } x>3 ~ (-\infty,2)\cup(3,\infty)
x>3 or x<2 ~ (-\infty,2)\cup(3,\infty)
x<2 \lor x>3 ~ x<2 \text{ or } x>3
x = 3 + 4 = 7 ~ 7
3 + 4 = 7 ~ 7
A = \frac{1}{2}bh = 12 ~ 12
y = x(x+1) = x^2+x ~ x^2+x
# bases and ratios
1010_2 ~ 1010_2
1010_{2} ~ 1010_2
3:4 ~ 3:4
3 : 4 ~ 3:4
12:30 ~ 12:30
# times, ratios, and scientific notation in plain text
10:30 \text{ a.m.} ~ 10:30 AM
10:30 AM ~ 10:30 a.m.
10:30 a.m. ~ 10:30 am
5 to 3 ~ 5:3
5 \text{ to } 3 ~ 5:3
\frac{5}{3} ~ 5:3
5:3 ~ \frac{5}{3}
5 x 10^3 ~ 5000
5.2 x 10^{-3} ~ 0.0052
1\text{ }\frac{3}{4} ~ \frac{7}{4}
USD 32,348 ~ \$32,\!348
72 EUR ~ 72€
5 \text{ m s}^{-1} ~ 5 m/s
5 \text{ m} \text{ s}^{-2} ~ 5 \text{ m/s}^2
# words that may be a unit
5 \text{ more} ~ 5
5 \text{ more apples} ~ 5
# solutions by name
x=1, y=2 ~ (1,2)
b = 2, a = 1 ~ (1,2)
\begin{cases} x=1 \\ y=2 \end{cases} ~ (1,2)
\text{no solution} ~ \emptyset
\text{No solutions.} ~ no solution
no real solutions ~ \varnothing
x \neq 2 ~ (-\infty,2)\cup(2,\infty)
# units that are unknown, and percent of no number
5 m^{12} ~ 5 m^{12}
5 \text{ square units} ~ 5 \text{ square meters}
5 \text{ µm} ~ 5 \text{ µm}
# sets, tuples, and letters
\{1,1,2\} ~ \{1,2\}
\emptyset ~ \varnothing
# factorials and binomials of any number
(1/2)! ~ \frac{\sqrt{\pi}}{2}
0! ~ 1
\binom{-1}{2} ~ 1
\binom{1/2}{2} ~ -1/8
\binom{5}{1/2} ~ \frac{512}{63\pi}
\binom{2}{5} ~ 0
# functions at special points
\cot(\pi/4) ~ 1
\sec(\pi/3) ~ 2
\csc(\pi/6) ~ 2
\lfloor 2.5 \rfloor ~ 2
\lceil 2.5 \rceil ~ 3
\lfloor -2.5 \rfloor ~ -3
\lfloor 3 \rfloor ~ 3
\ln e^2 ~ 2
# roots and powers with several values
\sqrt[3]{8} ~ 2
\sqrt[4]{16} ~ 2
\sqrt{-4} ~ 2i
\sqrt[3]{2} ~ 2^{1/3}
\sqrt{8/9} ~ \frac{2\sqrt{2}}{3}
\sqrt{4/9} ~ \frac{2}{3}
# signs of plus and minus
\mp 1 ~ 1, -1
2 \mp \sqrt{3} ~ 2 \pm \sqrt{3}
x = \mp 1 ~ x = \pm 1
3, \pm 1 ~ 3, 1, -1
\pm 1 or \pm 2 ~ 1,-1,2,-2
# mixed numbers
1\frac{1}{2} ~ 3/2
2\frac{3}{4} ~ 11/4
x\frac{1}{2} ~ x/2
# infinities and numbers beyond floats
+\infty ~ \infty
10^{400} ~ 10^{400}
# ratios of other lengths
1 to 2 ~ 1:2
# equations with another solution, or with every one
x=1+1=2 ~ 2
2y = 4x ~ y = 2x
"""

_WRONG = r"""
# numbers
5 ~ 6
5 ~ -5
50 ~ 5
0.5 ~ 5
3.14 ~ \pi
0.33 ~ \frac{1}{3}
1.41 ~ \sqrt{2}
1,000 ~ 1
1,000 ~ 100
100000000000000000000001 ~ 100000000000000000000002
10^{100} ~ 10^{100}+1
1e3 ~ 100
0.1\overline{6} ~ 0.16
0.333334 ~ \frac{1}{3}
3.141593 ~ 3.141592
1234 ~ 12345
007 ~ 70
# fractions
\frac{1}{2} ~ \frac{1}{3}
\frac{1}{2} ~ 2
\frac{2}{1} ~ \frac{1}{2}
2\frac{1}{2} ~ 1
2\frac{1}{2} ~ \frac{2}{2}
-\frac{1}{2} ~ \frac{1}{2}
1/3 ~ 0.3
\frac12 ~ 12
# roots and powers
\sqrt{2} ~ 2
\sqrt{2} ~ \sqrt{3}
2\sqrt{2} ~ 2
\sqrt[3]{8} ~ \sqrt{8}
2^{10} ~ 20
2^{10} ~ 1000
\sqrt{4} ~ -2
x^2 ~ x^3
(-2)^2 ~ -4
-2^2 ~ 4
\sqrt{x^2} ~ x
|x| ~ x
# expressions
x+1 ~ x-1
x+1 ~ x+2
x^2-1 ~ x^2+1
(x+1)^2 ~ x^2+1
2x ~ x^2
2x ~ 2y
x ~ y
\frac{x}{2} ~ \frac{2}{x}
ab ~ a+b
a-b ~ b-a
2\pi r ~ \pi r^2
n(n+1)/2 ~ n(n-1)/2
x+y ~ x
3x ~ 3
e^x ~ e^{-x}
2xyz ~ 2
x_1 ~ x_2
# functions
\sin x ~ \cos x
\sin 2x ~ 2\sin x
\sin^2 x ~ \cos^2 x
\ln 2+\ln 3 ~ \ln 5
\log_2 8 ~ 2
5! ~ 25
\binom{5}{2} ~ 20
\lfloor 3.7 \rfloor ~ 4
\sin 30^\circ ~ \frac{\sqrt{3}}{2}
\tan x ~ \frac{\cos x}{\sin x}
# complex
3+4i ~ 3-4i
3+4i ~ 7
2i ~ 2
# percent
50\% ~ 5
50\% ~ 500
50\% ~ 0.05
5\% ~ 50\%
0.5\% ~ 50
# units
10 cm ~ 11 cm
10 cm ~ 10 m
1 m ~ 10 cm
2 hours ~ 2 minutes
5 apples ~ 6
90^\circ ~ 180^\circ
5 apples ~ 5 pears
60 minutes ~ 1 day
3 kg ~ 3 g
# assignments
x=5 ~ 6
x=5 ~ -5
y=2x+1 ~ y=2x-1
x=1 ~ x=2
x+y=1 ~ x+y=2
x=5, y=6 ~ 6, 7
# tuples
(1,2) ~ (2,1)
(1,2) ~ (1,2,3)
(1,2) ~ (1,3)
(1,2) ~ 1
(1,2) ~ 12
(1,2) ~ \{1,2\}
(1,234) ~ 1234
# sets and lists
\{1,2\} ~ \{1,3\}
\{1,2\} ~ \{1,2,3\}
\{1,2,3\} ~ \{1,2\}
1,2 ~ 1,3
1,2 ~ 1
1 ~ 1,2
\pm 2 ~ 2
2 ~ \pm 2
\pm 2 ~ \pm 3
\emptyset ~ \{0\}
\{1,3\}\cup\{2\} ~ \{1,2\}
1 or 2 ~ 1 or 3
\{(1,2)\} ~ \{(2,1)\}
# intervals
[1,2] ~ (1,2)
[1,2) ~ (1,2]
[1,2] ~ [1,3]
(-\infty,3) ~ (-\infty,3]
(1,\infty) ~ (-\infty,1)
x<2 ~ x\le 2
x<2 ~ x>2
x<2 ~ (-\infty,2]
1<x<2 ~ [1,2]
[1,2)\cup(3,4] ~ [1,2)\cup(3,4)
\mathbb{R} ~ (0,\infty)
x>1 ~ x>2
# matrices
\begin{pmatrix}1&2\\3&4\end{pmatrix} ~ \begin{pmatrix}1&3\\2&4\end{pmatrix}
\begin{pmatrix}1&2\end{pmatrix} ~ \begin{pmatrix}1\\2\end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} ~ \begin{pmatrix}1&2\\3&5\end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} ~ -2
\begin{pmatrix}1\end{pmatrix} ~ \begin{pmatrix}2\end{pmatrix}
# words and choices
\text{Monday} ~ Tuesday
A ~ B
(A) ~ (B)
\text{yes} ~ no
east ~ west
\text{no solution} ~ 0
A ~ 1
\text{even} ~ odd
# unicode
½ ~ 2
−5 ~ 5
x² ~ x^3
x² ~ x2
√2 ~ 2
π ~ 3
¾ ~ 4
10⁻² ~ 100
x≤3 ~ x\ge 3
# mathematics in groups of text
\text{42} ~ 43
\textbf{4} ~ 42
\text{-3} ~ 3
\text{5 cm} ~ 6
\text{5 cm} ~ 5 m
\text{(3, 4)} ~ (4,3)
\text{Day 3} ~ 3
\text{5 or 6} ~ 5
\text{not 5} ~ 5
3\mathrm{i} ~ 3
2\mathrm{i} ~ 3i
5\text{m} ~ 5 cm
# units with a stroke, percent in words, degrees of Celsius
5 \text{ km/h} ~ 5 \text{ m/s}
5 m/s ~ 5 \text{ km}
5 km/h ~ 6 km/h
25\text{ percent} ~ 5
25\text{ percent} ~ 2.5\%
100°C ~ 10
100°C ~ 100°F
100°C ~ 100 cm
# powers of powers
2^3^2 ~ 64
2^{3}^{2} ~ 64
e^-x^2 ~ e^{-2x}
e^-x^2 ~ e^{x^2}
# signs and order that matter
√13 ~ 3
\sqrt13 ~ 3
73 = 72 ~ 72
x = 73 = 72 ~ 72
x = 72 = 73 ~ 72
x = 73 = 72 ~ x = 72
\neq 72 ~ 72
\ne 72 ~ 72
x \neq 72 ~ 72
< 72 ~ 72
\approx 71 ~ 72
a ~ A
e ~ E
x ~ X
b ~ B
AB ~ BA
\text{AB} ~ BA
10,\!080 ~ 1080
10,\!080 ~ 10
£72 ~ \$72
72€ ~ \$72
**72** ~ 73
\textcolor{red}{72} ~ 73
\bm{7}2 ~ 7
90^{\text{o}} ~ 91
\{1\pm\sqrt{5},-2\} ~ \{1\pm\sqrt{5},2\}
-2, 1+\sqrt5 ~ \{1\pm\sqrt{5},-2\}
\pm 1 \pm \sqrt{2} ~ 1+\sqrt{2}, -1-\sqrt{2}
864\text{ in}^2 ~ 864 \text{ in}
864\text{ in}^2 ~ 864 \text{ in}^3
1 \text{ m}^2 ~ 100 \text{ cm}^2
5 sq cm ~ 5 cm
NO ~ ON
\text{II} ~ III
\text{A, B} ~ A,B,C
\text{A, B, C} ~ A,B
(a) ~ B
\textbf{(C)}\ 14 ~ (D)
\textbf{(C)}\ 15 ~ \textbf{(C)}\ 14
\textbf{(D)}\ 14 ~ \textbf{(C)}\ 14
Option C ~ D
(C) or (D) ~ C
not C ~ C
C, D ~ C
\binom{n}{2} ~ \frac{n(n+1)}{2}
\frac{(n+1)!}{n!} ~ n
(-1)^{n} ~ 1
\cos(n\pi) ~ (-1)^{n+1}
x<2 \text{ or } x>3 ~ (-\infty,2)\cup[3,\infty)
x<2 \text{ and } x>3 ~ (-\infty,2)\cup(3,\infty)
x<3 \text{ or } x>2 ~ (2,3)
3 + 4 = 8 ~ 8
Answer: 72 ~ 7
The answer is not 72 ~ 72
# times, ratios, and scientific notation in plain text
10:30 a.m. ~ 10:30 PM
10:30 ~ \frac{1}{3}
10:6 ~ \frac{3}{5}
3 to 5 ~ 5:3
\frac{3}{5} ~ 5:3
5 x 10^3 ~ 500
5 \text{ m s}^{-2} ~ 5 m/s
32 \text{ EUR} ~ \$32
# solutions by name
y=1, x=2 ~ (1,2)
x=2, y=1 ~ (1,2)
x=1, x=2 ~ (2,1)
\begin{cases} x=2 \\ y=1 \end{cases} ~ (1,2)
no solution ~ \{0\}
no solution ~ \infty
x \neq 2 ~ 2
x \neq 2 ~ (-\infty,2]\cup(2,\infty)
x \neq 2 ~ (-\infty,3)\cup(3,\infty)
# words that are no unit
5 maybe ~ 5
5 more than x ~ 5
5 \text{ is wrong} ~ 5
5 \text{ perhaps} ~ 5 \text{ cm}
# equations with another solution, or with every one
x+y=x+y ~ x+y=1
y=y ~ y=3
2x=2x ~ 2x=4
x-x=0 ~ x+y=1
0=0 ~ x+y=1
x+1=1+x ~ x=2
x=2=3 ~ x=2
x=2=3 ~ x=3
1+1=2=3 ~ 2
y = 2x ~ y = 3x
y - 2x = 1 ~ y = 2x
(x-1)(y-2)=0 ~ x-1=0
x^2=4 ~ x=2
# inequalities that are no interval
x=1 ~ x>1
x>1 ~ x=1
x \le 1 ~ x=1
1<x>2 ~ (1,2]
(1,2] ~ 1<x>2
2>x<1 ~ (1,2)
1<2<3 ~ (1,3)
1<x<y ~ (1,2)
# sets, tuples, and letters
1,2 ~ 0.5
(1,2) ~ 1/2
X ~ Y
A ~ a b
\text{A} ~ 1
x ~ \text{x y}
\text{yes} ~ y
\text{True} ~ T
(1,2,2) ~ (1,2)
( ~ 5
0 ~ \{\}
\{0\} ~ \emptyset
\emptyset ~ 0
# ratios of other lengths
1:2 ~ (1,2)
1:2:3 ~ 1/2
1/2 ~ 1:2:3
1:2:3 ~ 2^n
1:2 ~ 2:1
1:2:3 ~ 1:2
3:15 ~ 0.2
0:1 ~ 1:0
1 to 2 ~ 1
# units that are unknown, and percent of no number
\{1,-1\} ~ 50\%
(1,2) ~ 50\%
1,2 ~ 5 \text{ meters}
5 \text{ m} ~ [1,2]
5 m^{12} ~ 5 m
5 \text{ µm} ~ 5 \text{ m}
5\% ~ 5 \text{ m}
5 \text{ square units} ~ 6 \text{ square meters}
# factorials, binomials, and powers of any number
(1/2)! ~ \sqrt{\pi}
(1/2)! ~ -2\sqrt{\pi}
(-1)! ~ 1
\binom{5}{1/2} ~ 1
n! ~ n
2^n ~ 2^{n+1}
(-1)^n ~ 1
(10^{400})! ~ 5
# functions at special points
\cot(\pi/3) ~ \sqrt{3}
\lceil 2.5 \rceil ~ 2
\cos(n\pi) ~ 1
\sin(\pi/2 + n\pi) ~ 1
\log x ~ \log_2 x
# roots and powers with several values
\sqrt[4]{-16} ~ -2
\sqrt{-4} ~ -2
\sqrt{4/3} ~ \frac{2}{3}
x^{1.5} ~ x
\frac{x^2-1}{x-1} ~ x-1
x^{1/2} ~ -\sqrt{x}
# signs of plus and minus
\pm 1 \pm 2 ~ 3, -3
\pm 1 \pm 2 ~ 3,-3,1,-1
(\pm 1, 2) ~ 1,-1,2
\pm ~ 0
\pm 1 or \pm 2 ~ 1,-1
# mixed numbers
1\frac{3}{2} ~ 5/2
1.5\frac{1}{2} ~ 2
# shapes of matrices
\begin{pmatrix}1&2\\3\end{pmatrix} ~ \begin{pmatrix}1&2\\3&4\end{pmatrix}
\begin{pmatrix}1&2\\3\end{pmatrix} ~ \begin{pmatrix}1&2&3\end{pmatrix}
\begin{cases}1&2\\3&4\end{cases} ~ \begin{pmatrix}1&2\\3&4\end{pmatrix}
\begin{pmatrix}1&2\end{pmatrix} ~ 1,2
# infinities and numbers beyond floats
\infty ~ x
\infty ~ 10^{300}
-\infty ~ \infty
\infty + 1 ~ 5
10^{400} ~ 10^{401}
10^{-400} ~ 0
1/10^{400} ~ 0
2^{10^{9}} ~ 2
9^{9^{9}} ~ 0
# exclusions
x \neq 2 ~ x \neq 3
x \neq 1, 2 ~ x \neq 1
1 \neq x ~ x \neq 2
x+1 \neq 2 ~ x \neq 2
x \neq y ~ x \neq 2
# references without a value
y=3 ~ 1=1
y=1/x ~ 0=0
x=0 ~ x=x
4 ~ 0/0
5 ~ \csc 0
-i ~ (10^{400})!
(2i)! ~ 5
\binom{i}{2} ~ 5
\lfloor i \rfloor ~ 0
# adversarial strings
 ~ 5
? ~ 5
. ~ ,
{} ~ 5
() ~ 5
\boxed{} ~ 5
$$ ~ 5
\frac{1}{0} ~ 5
1/0 ~ 0
0/0 ~ 1
5 5 ~ 55
55 ~ 5
5 or 6 or 7 ~ 5
1,2,3,4,5,6,7,8,9 ~ 5
\text{the answer is 5 but it may be 6} ~ 5
not 5 ~ 5
5 ~ 5; drop table
__import__('os') ~ 1
lambda: 5 ~ 5
5==5 ~ 5
True ~ 1
nan ~ 5
inf ~ 5
\infty ~ 5
\infty ~ -\infty
9^{9^{9^{9}}} ~ 1
((((((((((5 ~ 5
5)))))))) ~ 5
x ~ 5
5x ~ 5
\frac{5} ~ 5
\sqrt{} ~ 0
\begin{pmatrix} ~ 1
\undefined{5} ~ 5
5 \ne 5 ~ 5
5 < 6 ~ 5
\{5 ~ 5
[5 ~ 5
| ~ 0
^ ~ 0
& ~ 0
\\ ~ 0
"""


def _pairs(text: str, label: bool) -> list[tuple[str, str, bool]]:
    lines = [line for line in text.splitlines() if line and not line.startswith("# ")]
    return [(*line.rsplit(" ~ ", 1), label) for line in lines]  # type: ignore[misc]


PAIRS: list[tuple[str, str, bool]] = _pairs(_RIGHT, True) + _pairs(_WRONG, False)
