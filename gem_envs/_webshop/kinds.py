"""The kinds of products of the generated catalog."""

from __future__ import annotations

from typing import NamedTuple


class ProductKind(NamedTuple):
    """Common properties of the products of a kind.

    Attributes:
        query: A customer's name for it; the title also ends with these words.
        path: Department, shelf, and kind.
        price: Lowest and highest price, in dollars.
        options: Names of the options to choose from.
        attributes: Possible attributes; each product has some of them.
    """

    query: str
    path: tuple[str, str, str]
    price: tuple[int, int]
    options: tuple[str, ...]
    attributes: tuple[str, ...]


_COLORS = (  # noqa: SIM905
    "black|white|navy blue|sky blue|dark green|mint|wine red|coral|mustard|sand|charcoal|lilac|copper|ivory"
).split("|")
_SIZES = {
    "wear": "x-small|small|medium|large|x-large|xx-large",
    "shoe": "5|5.5|6|6.5|7|7.5|8|8.5|9|9.5|10|11",
    "bed": "twin|full|queen|king",
    "volume": "8 ounce|12 ounce|16 ounce|24 ounce|32 ounce",
    "length": "3 feet|6 feet|10 feet|15 feet",
    "area": "2 ft x 3 ft|3 ft x 5 ft|5 ft x 7 ft|8 ft x 10 ft",
}
VALUES: dict[str, tuple[str, tuple[str, ...]]] = {
    "color": ("color", tuple(_COLORS)),
    **{kind: ("size", tuple(values.split("|"))) for kind, values in _SIZES.items()},
    "pack": ("item package quantity", ("1", "2", "4", "6", "12")),
    "flavor": (
        "flavor name",
        ("sea salt", "honey", "lemon", "cocoa", "ginger", "paprika", "vanilla", "berry"),
    ),
    "scent": ("scent", ("unscented", "cedar", "orange blossom", "lavender", "eucalyptus", "rose")),
    "style": ("style", ("classic", "modern", "rustic", "minimal", "striped")),
}
"""Name and values of the options, by the key that the kinds use."""

_CLOTH = (
    "machine washable|quick drying|organic cotton|soft lining|loose fit|slim fit|wrinkle free|hidden pocket"
)
_SHOE = "rubber sole|arch support|non slip|wide toe|water resistant|memory foam|leather upper|light weight"
_KITCHEN = (
    "dishwasher safe|stainless steel|heat resistant|easy grip|leak proof|bpa free|space saving|hand made"
)
_HOME = "solid wood|easy assembly|scratch resistant|metal frame|height adjustable|foldable legs|stain proof"
_DEVICE = (
    "fast charging|long battery|shock proof|dust proof|voice control|wireless pairing|gold plated|low noise"
)
_FOOD = "gluten free|low sugar|additive free|high protein|plant based|single wrapped|dairy free|slow dried"
_CARE = "fragrance free|natural oils|sensitive skin|long lasting|cruelty free|travel size|skin tested"
_OUT = (
    "wind proof|uv protected|double stitched|rust proof|glow marked|frost proof|quick release|high visibility"
)

# query ; department ; shelf ; prices ; options ; attributes
_TABLE = f"""
rain jacket;Clothing;Jackets;30-120;color wear;{_CLOTH}|wind proof|taped seams
linen shirt;Clothing;Shirts;18-60;color wear style;{_CLOTH}|button down
hooded sweater;Clothing;Sweaters;22-80;color wear;{_CLOTH}|drawstring hood
pleated skirt;Clothing;Skirts;20-70;color wear;{_CLOTH}|high waist
jogging pants;Clothing;Trousers;18-65;color wear;{_CLOTH}|elastic waist
evening dress;Clothing;Dresses;35-160;color wear;{_CLOTH}|long sleeve
wool socks;Clothing;Socks;6-25;color pack;{_CLOTH}|reinforced heel
sun hat;Clothing;Hats;10-40;color style;{_CLOTH}|wide brim
running shoes;Shoes;Sports Shoes;40-150;color shoe;{_SHOE}|breathable mesh
hiking boots;Shoes;Boots;55-190;color shoe;{_SHOE}|ankle support
leather loafers;Shoes;Slip-Ons;40-140;color shoe;{_SHOE}|cushioned insole
bath slippers;Shoes;Slippers;9-35;color shoe;{_SHOE}|open toe
frying pan;Kitchen;Cookware;18-95;color pack;{_KITCHEN}|non stick
water bottle;Kitchen;Drinkware;9-45;color volume;{_KITCHEN}|double walled
bread knife;Kitchen;Cutlery;12-70;style pack;{_KITCHEN}|serrated blade
spice rack;Kitchen;Storage;14-60;color style;{_KITCHEN}|wall mounted
tea kettle;Kitchen;Kettles;20-90;color volume;{_KITCHEN}|whistling lid
lunch box;Kitchen;Storage;10-40;color style;{_KITCHEN}|three compartments
coffee table;Furniture;Tables;70-320;color style;{_HOME}|hidden drawer
desk chair;Furniture;Chairs;60-290;color style;{_HOME}|lumbar support
book shelf;Furniture;Shelves;40-260;color style;{_HOME}|five tiers
bed frame;Furniture;Beds;90-420;color bed;{_HOME}|under bed storage
floor lamp;Furniture;Lamps;25-130;color style;{_HOME}|dimmable light
area rug;Home Textiles;Rugs;25-210;color area;machine washable|{_HOME}|non slip
bed sheets;Home Textiles;Bedding;20-110;color bed;{_CLOTH}|deep pockets
bath towels;Home Textiles;Towels;12-60;color pack;{_CLOTH}|extra thick
curtain panels;Home Textiles;Curtains;18-95;color style;machine washable|light blocking|low noise|rod pocket
charging cable;Electronics;Cables;6-35;color length;{_DEVICE}|braided nylon
desk speaker;Electronics;Audio;20-140;color style;{_DEVICE}|deep bass
wireless headphones;Electronics;Audio;25-240;color style;{_DEVICE}|noise cancelling
tablet case;Electronics;Cases;10-60;color style;{_DEVICE}|kick stand
security camera;Electronics;Cameras;30-190;color pack;{_DEVICE}|night vision
desk lamp;Electronics;Lights;15-85;color style;{_DEVICE}|dimmable light
mixed nuts;Food;Snacks;6-40;flavor pack;{_FOOD}|resealable bag
granola bars;Food;Snacks;5-30;flavor pack;{_FOOD}|whole grain
green tea;Food;Drinks;6-38;flavor pack;{_FOOD}|loose leaf
pasta sauce;Food;Pantry;5-28;flavor volume;{_FOOD}|sun ripened
dried fruit;Food;Snacks;6-32;flavor pack;{_FOOD}|resealable bag
face cream;Beauty;Skin Care;8-70;scent volume;{_CARE}|anti aging
hair shampoo;Beauty;Hair Care;7-45;scent volume;{_CARE}|color safe
bar soap;Beauty;Bath;4-25;scent pack;{_CARE}|cold pressed
lip balm;Beauty;Make-Up;3-20;scent pack;{_CARE}|bees wax
scented candle;Home;Candles;8-48;scent color;long lasting|hand made|natural oils|cotton wick|soy wax|low smoke
camping tent;Outdoors;Tents;60-330;color style;{_OUT}|easy setup
garden hose;Outdoors;Garden;18-90;color length;{_OUT}|leak proof
bike helmet;Outdoors;Cycling;25-130;color wear;{_OUT}|adjustable strap
sleeping bag;Outdoors;Sleeping;30-170;color style;{_OUT}|machine washable
travel backpack;Outdoors;Bags;28-150;color style;{_OUT}|laptop sleeve
"""


def _kinds() -> tuple[ProductKind, ...]:
    kinds = []
    for line in _TABLE.strip().splitlines():
        query, department, shelf, price, options, attributes = line.split(";")
        low, high = price.split("-")
        path = (department, shelf, query.title())
        kind = ProductKind(
            query, path, (int(low), int(high)), tuple(options.split()), tuple(attributes.split("|"))
        )
        kinds.append(kind)
    return tuple(kinds)


KINDS = _kinds()
