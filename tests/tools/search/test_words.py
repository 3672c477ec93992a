# ruff: noqa: RUF001
from __future__ import annotations

import unicodedata

import pytest

from gem_envs.tools.search._words import query_words, runs, words

FOUND = [
    # scripts without blanks between words
    ("北京", "北京是中国的首都。"),
    ("首都", "北京是中国的首都。"),
    ("京", "北京是中国的首都。"),
    ("中國", "臺灣與中國"),
    ("首都", "東京は日本の首都です"),
    ("とうきょう", "それはとうきょうえきです"),
    ("コンピュータ", "新しいコンピューターを買う"),
    ("ｺﾝﾋﾟｭｰﾀ", "新しいコンピューターを買う"),
    ("수도", "서울은 대한민국의 수도이다"),
    ("서울", "서울특별시"),
    ("물", "물을 마신다"),
    (unicodedata.normalize("NFD", "수도"), "대한민국의 수도이다"),
    ("ไทย", "กรุงเทพเป็นเมืองหลวงของประเทศไทย"),
    ("น้ำ", "ฉันดื่มน้ำทุกวัน"),
    ("ລາວ", "ວຽງຈັນເປັນນະຄອນຫຼວງຂອງລາວ"),
    ("ខ្មែរ", "ភាសាខ្មែរជាភាសាផ្លូវការ"),
    ("မြန်မာ", "ရန်ကုန်သည်မြန်မာနိုင်ငံ၏မြို့ဖြစ်သည်"),
    ("𠮷野", "𠮷野家で食べる"),
    ("葛\U000e0100飾", "葛飾区"),
    ("3月", "2023年3月に"),
    ("iphone", "新しいiPhoneを買う"),
    # marks
    ("हिन्दी", "हिन्दी भारत की एक भाषा है"),
    ("தமிழ்", "தமிழ் ஒரு மொழி"),
    ("বাংলা", "বাংলা ভাষা"),
    ("Ko\u0308ln", "Köln liegt am Rhein."),
    ("Köln", "Ko\u0308ln liegt am Rhein."),
    ("MU\u0308LLER", "Müller"),
    ("Việt Nam", unicodedata.normalize("NFD", "Việt Nam")),
    # case and spelling
    ("istanbul", "İstanbul'da"),
    ("İSTANBUL", "istanbul"),
    ("strasse", "Straße"),
    ("ΟΔΟΣ", "οδός".replace("ό", "ο")),
    ("abc", "ＡＢＣ"),
    ("файл", "ФАЙЛ"),
    ("efficient", "e\ufb03cient"),
    ("hyphenation", "hyphen\u00adation"),
    ("محمد", "مُحَمَّد"),
    ("שלום", "שָׁלוֹם"),
    ("میخواهم", "می\u200cخواهم"),
    ("don't", "don\u2019t"),
    ("мʼята", "м'ята"),
]
ABSENT = [
    ("京北", "北京是中国的首都。"),
    ("道守", "수도이다 지키다"),
    ("Koln", "Köln"),
    ("हिन", "हिन्दी"),
    ("न", "हिन्दी"),
    ("", "北京"),
    ("。…！", "北京。"),
    ("❤️", "I ❤️ it"),
]


@pytest.mark.parametrize(("query", "text"), FOUND)
def test_every_word_of_the_query_is_in_the_text(query, text):
    asked = query_words(query)
    assert asked
    assert set(asked) <= set(words(text))


@pytest.mark.parametrize(("query", "text"), ABSENT)
def test_no_word_of_the_query_is_in_the_text(query, text):
    assert set(query_words(query)).isdisjoint(words(text))


def test_plain_text_is_split_as_before():
    text = "The U.S. team's 2nd e-mail: snake_case, naïve café -- 3.5%"
    expected = ["the", "u", "s", "team", "s", "2nd", "e", "mail", "snake_case", "naïve", "café", "3", "5"]
    assert words(text) == query_words(text) == runs(text) == expected
    assert words(text.encode("ascii", "ignore").decode())[:8] == expected[:8]


def test_marks_belong_to_the_word_before_them():
    assert words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert words("\u0301 a") == ["a"]  # a mark after nothing is no word
    assert words("ខ្មែរ") == ["ខ្", "មែ", "រ", "ខ្មែ", "មែរ"]


def test_words_are_the_same_in_every_normal_form():
    texts = [text for pair in FOUND for text in pair]
    assert texts
    for text in texts:
        forms = {tuple(words(unicodedata.normalize(form, text))) for form in ("NFC", "NFD", "NFKC", "NFKD")}
        assert len(forms) == 1, text


def test_a_sentence_of_several_scripts():
    assert words("Köln大学2023年") == ["köln", "大", "学", "大学", "2023", "年"]
    assert query_words("Köln大学2023年") == ["köln", "大学", "2023", "年"]
