r"""`WebShop`: buy what an instruction asks for.

An independent implementation of the benchmark of Yao et al. (2022): the same pages, actions, and reward,
without a server, a browser, or Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, get_args

from gem_core._core import Split, StepResult
from gem_core._util.checks import check_choice, check_int
from gem_core.errors import ConfigError
from gem_envs._base import MoveResult, TurnBasedEnv
from gem_envs._text import command
from gem_envs._webshop import pages
from gem_envs._webshop.catalog import Catalog, Goal, Product, ShopSplit
from gem_envs._webshop.generated import generated_catalog
from gem_envs._webshop.official import official_catalog
from gem_envs._webshop.pages import BACK, BUY, NEXT, PAGE_SIZE, PREVIOUS, TABS, Mode, Part
from gem_envs._webshop.reward import same_option, score
from gem_envs.data._split import undivided

_FOUND = 50
"""Maximum number of search results."""
_RULES = r"""You are shopping on a website. Buy a product that fits the instruction, with the right options.
Each turn, do one thing. Search the shop for some words, for example \boxed{search[warm socks]}. Or click a
button, a product code or an option of the page: \boxed{click[buy now]} on the page of a product buys it, and
ends the visit."""


class WebShop(TurnBasedEnv[tuple[str, str]]):
    r"""Find a product by search, choose its options, and buy it.

    Action: ``\boxed{search[red running shoes]}`` on any page, or ``\boxed{click[text]}`` with the text of a
    button, a product code, or an option of the page, in either case. Clicking something that is not on the
    page is illegal.

    Rewards: on buying, WebShop's score from 0 to 1: type * (attributes that fit + options that fit + 1 if the
    price fits) / (wanted attributes + wanted options + 1); success is a score of 1. Everything else earns 0.
    A format error earns -0.1; the episode continues until there are more than `error_tolerance` of them.

    `max_return` is 1. On the generated catalog the oracle, which buys the product that the goal was made
    from, reaches it; on WebShop's own data, some goals contradict the options of their product.

    The goal of an episode is drawn from the goals of the split; ``reset(options={"index": i})`` selects goal
    i.
    """

    state_fields = (
        *TurnBasedEnv.state_fields, "goal_index", "page", "results", "results_page", "asin", "chosen", "seen",
        "errors", "earned",
    )  # fmt: skip
    format_error_ends: ClassVar[bool] = False

    goal_index: int
    """Index of the current goal within the split."""
    page: str
    """``"start"``, ``"results"``, ``"item"``, or the name of a tab."""
    _open: list[Part] | None
    """The current page once it has been built."""

    def __init__(
        self,
        split: ShopSplit = "train",
        observation_mode: Mode = "text",
        data: str | None = None,
        num_products: int | None = 1000,
        human_goals: bool = True,
        max_turns: int = 15,
        error_tolerance: int = 15,
        seed: int = 0,
    ) -> None:
        """Open the shop.

        Args:
            split: "train" or "test"; they share the products but no goal.
            observation_mode: "html", "text", or "text_rich".
            data: Folder with WebShop's data files; None for the generated catalog.
            num_products: Number of products; None means all in the files.
            human_goals: Whether to use the instructions in `data` that people wrote instead of those from a
                template.
            max_turns: Turn limit.
            error_tolerance: Number of tolerated responses without a readable action; the next one terminates
                the episode.
            seed: Random seed of the generated catalog.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
            DataError: The files in `data` are missing or cannot be read.
        """
        check_choice("split", split, get_args(ShopSplit))
        self.mode = check_choice("observation_mode", observation_mode, get_args(Mode))
        self.max_turns = check_int("max_turns", max_turns, 1)
        self.error_tolerance = check_int("error_tolerance", error_tolerance, 0)
        if data is None and num_products is None:
            raise ConfigError(
                "num_products=None takes all products of the files in data, but data is None; set "
                "data= to the "
                "folder, or num_products="
            )
        if num_products is not None:
            check_int("num_products", num_products, 10)
        self.catalog: Catalog
        if data is None:
            self.catalog = generated_catalog(num_products or 0, check_int("seed", seed, 0))
        else:
            self.catalog = official_catalog(str(data), num_products, bool(human_goals))
        self.oracle_certain = data is None
        self.goals: list[Goal] = self.catalog.goals[split]
        self.num_items = len(self.goals)
        self.split = split

    def items(self, split: Split) -> range:
        return undivided(self.num_items, self.split == "test", split)

    # -- the game -----------------------------------------------------------------------------

    def new_game(self) -> None:
        self.turn_limit = self.max_turns
        self.goal_index = self.random.randrange(len(self.goals))
        self.page, self.asin = "start", ""
        self.results: list[str] = []
        self.results_page = 1
        self.chosen: dict[str, str] = {}
        self.seen: list[str] = []
        self.errors = 0
        self.earned = 0.0
        self._open = None

    def take_item(self, index: int) -> None:
        self.goal_index = index

    def rules(self) -> str:
        return f"{_RULES}\n\n{self._shown()}"

    parse = staticmethod(command)

    def play(self, move: tuple[str, str]) -> MoveResult:
        verb, argument = move
        if verb == "search":
            self._search(argument)
        elif verb == "click":
            label = " ".join(argument.lower().split())
            if label == "search" and self.page == "start":
                return f"To search, write the words: search[words].\n{self._shown()}", 0.0, "continue"
            part = pages.clickable(self._parts()).get(label)
            if part is None:
                return "This page has nothing of that name to click.", 0.0, "illegal"
            if part.text == BUY:
                return self._buy()
            self._click(part)
        else:
            return "The only actions are search[...] and click[...].", 0.0, "illegal"
        self._open = None
        return self._shown(), 0.0, "continue"

    def board(self) -> str:
        """Return the choices so far and the actions of this page."""
        if not self._running:
            return ""
        clicks = "".join(f", click[{text}]" for text in pages.clickable(self._parts()))
        chosen = ", ".join(f"{name}: {value}" for name, value in self.chosen.items())
        return "".join([f"Chosen: {chosen}.\n" if chosen else "", "Actions: search[words]", clicks, "."])

    def progress(self) -> float:
        return self.earned

    def _format_error(self, reason: str) -> StepResult:
        self.errors += 1
        if self.errors > self.error_tolerance:
            return self._end(reason, self.format_error_reward, {"invalid": "format"}, success=False)
        return super()._format_error(reason)

    # -- players ------------------------------------------------------------------------------

    def random_move(self, random: Random) -> str:
        if self.page == "start":
            name = random.choice(self.catalog.products).name.replace("{", "").replace("}", "")
            return f"search[{name}]"
        return f"click[{random.choice(list(pages.clickable(self._parts())))}]"

    def best_move(self) -> str:
        goal = self.goal
        if self.page in TABS:
            return f"click[{PREVIOUS.lower()}]"
        if self.page == "item" and self.asin == goal.asin:
            return self._next_choice() or f"click[{BUY.lower()}]"
        asin = goal.asin.lower()
        if self.page == "results" and goal.asin in self.results:
            if asin in pages.clickable(self._parts()):
                return f"click[{asin}]"
            ahead = self.results.index(goal.asin) >= self.results_page * PAGE_SIZE
            return f"click[{(NEXT if ahead else PREVIOUS).lower()}]"
        name = self.catalog.product(goal.asin).name
        return f"search[{name.replace('{', '').replace('}', '')}]"

    def verify(self, action: str) -> bool | None:
        """Return whether a purchase fits the instruction, going by the pages of the product.

        None for any other action, and for WebShop's own data, whose instructions are free text.
        """
        from gem_envs._webshop.second_solver import fits

        self._require_running("verify")
        move = next((move for box in self.find(action) if (move := self.parse(box.strip()))), None)
        if move is None or not self.oracle_certain or self.page != "item":
            return None
        if move[0] != "click" or " ".join(move[1].lower().split()) != BUY.lower():
            return None
        shown = {part.name: part.text for part in self._parts() if part.sort == "text" and part.name}
        features = pages.tab_page("", self.product, "Features")[4:]
        texts = [part.text for part in features]
        price = shown["price"].removeprefix("Price: ")
        return fits(shown["instruction"], shown["name"], price, texts, self.chosen)

    def _next_choice(self) -> str | None:
        """Return an option of the goal that has not been chosen yet."""
        wishes = self.goal.options
        right = {n: v for n, v in self.chosen.items() if any(same_option(n, v, wish) for wish in wishes)}
        for wish in wishes:
            if not any(same_option(name, value, wish) for name, value in right.items()):
                for name, values in self.product.options.items():
                    for value in values:
                        if name not in right and same_option(name, value, wish):
                            return f"click[{value}]"
        return None

    # -- the shop -----------------------------------------------------------------------------

    @property
    def goal(self) -> Goal:
        """The current goal."""
        return self.goals[self.goal_index]

    @property
    def product(self) -> Product:
        """The product of the current page."""
        return self.catalog.product(self.asin)

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._open = None
        if self._running and not (
            0 <= self.goal_index < len(self.goals)
            and {*self.results, self.asin} - {""} <= self.catalog.indices.keys()
        ):
            raise ConfigError(
                "the state belongs to an environment with another catalog; make the environment with the "
                "arguments of the saved one"
            )

    def _parts(self) -> list[Part]:
        """Return the current page, built once."""
        if self._open is None:
            self._open = self._page()
        return self._open

    def _page(self) -> list[Part]:
        instruction = self.goal.instruction
        if self.page == "start":
            return pages.start_page(instruction)
        if self.page == "results":
            first = (self.results_page - 1) * PAGE_SIZE
            shown = [self.catalog.product(asin) for asin in self.results[first : first + PAGE_SIZE]]
            return pages.results_page(instruction, shown, self.results_page, len(self.results), self.seen)
        if self.page == "item":
            return pages.item_page(instruction, self.product, self.chosen)
        return pages.tab_page(instruction, self.product, self.page)

    def _shown(self) -> str:
        return pages.show(self._parts(), self.mode)

    def _search(self, query: str) -> None:
        places = self.catalog.search.best(query, _FOUND)
        self.results = [self.catalog.products[place].asin for place in places]
        self._list(1)

    def _list(self, page: int) -> None:
        """Show a page of the results; leaving a product discards the chosen options."""
        self.page, self.results_page, self.asin, self.chosen = "results", page, "", {}

    def _click(self, part: Part) -> None:
        if part.sort == "product":
            self.page, self.asin = "item", part.text
            if part.text not in self.seen:
                self.seen.append(part.text)
        elif part.sort == "option":
            self.chosen[part.name] = part.text
        elif part.text == BACK:
            self._list(1)
            self.page, self.results = "start", []
        elif part.text in TABS:
            self.page = part.text
        elif self.page in TABS:
            self.page = "item"
        else:
            offset = {NEXT: 1, PREVIOUS: -1}[part.text] if self.page == "results" else 0
            self._list(self.results_page + offset)

    def _buy(self) -> MoveResult:
        goal = self.goal
        match = score(self.product, self.chosen, goal, self.catalog.product(goal.asin))
        self.earned = match.total
        text = (
            f"Thank you for shopping. Your score is {match.total:.2f} of 1: type {match.type:g}, attributes "
            f"{match.attributes} of {len(goal.attributes)}, options {match.options} of {len(goal.options)}, "
            f"price {'within' if match.price else 'above'} the limit."
        )
        return text, match.total, "solved" if match.total >= 1 else "lost"
