"""The wiki game: go from page to page by their links, from a start to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from gem_core._util.checks import check_choice, check_int, expected
from gem_core._util.messages import join_or
from gem_core.errors import ConfigError, ServiceError
from gem_envs._base import MoveResult, TurnBasedEnv, check_together
from gem_envs._games.wiki_pages import BundledPages, Page, Pages, distances, within
from gem_envs._text import plain, undecorated

BACK = "<PREV_PAGE>"
_VARIANTS = {
    "noregrets": "There is no way back but by a link.",
    "oneback": f"\\boxed{{{BACK}}} takes you back to the page before, but not twice in a row.",
    "freenav": f"\\boxed{{{BACK}}} takes you back to the page before, as often as you like.",
    "eidetic": "You may also go to any page that was listed since the start.",
}
_SIZES = tuple((turns, variant) for turns in (30, 15) for variant in _VARIANTS)
_UNITS = ("characters", "words", "sentences")
_DRAWS = 20
"""Number of random pages to try until one has links, is not a disambiguation page and not the start."""


class WikiGame(TurnBasedEnv[str]):
    r"""Reach a target page of an encyclopedia by following links.

    Action: ``\boxed{Title}`` of a page that the current page links to; case and underscores do not
    matter. Any other answer is illegal, unless the variant allows it.

    | variant | also allowed |
    |---|---|
    | ``noregrets`` | nothing; a page without links ends the episode without success |
    | ``oneback`` | ``\boxed{<PREV_PAGE>}`` goes back to the previous page, not twice in a row |
    | ``freenav`` | ``\boxed{<PREV_PAGE>}`` at any time |
    | ``eidetic`` | any page listed earlier in this episode; no going back |

    With ``oneback`` and ``freenav`` a page without links sends the player back at once, which costs an extra
    turn.

    Rewards: 1 for the target, -0.05 for every other step (twice that for a page that sends the player back),
    -0.2 for an illegal move and for a format error, neither of which ends the episode.

    `max_return` is None: it is 1 - 0.05 * (steps - 1) on a shortest path, which differs between episodes.
    With the bundled encyclopedia the target can always be reached within the turns, and the oracle follows
    a shortest path. It knows no path on a server.
    """

    state_fields = (
        *TurnBasedEnv.state_fields,
        "variant",
        "current",
        "target",
        "trail",
        "went_back",
        "listed",
    )
    format_error_reward = -0.2
    format_error_ends: ClassVar[bool] = False
    max_return = None

    def __init__(
        self,
        max_turns: int | None = 20,
        backend: str = "bundled",
        trawler_kwargs: Mapping[str, Any] | None = None,
        page_summary_length: Sequence[Any] = (100, "characters"),
        variant: str | None = "noregrets",
    ) -> None:
        """Set the rules and the source of the pages.

        Args:
            max_turns: Turn limit. None (together with `variant`) draws 30 or 15 turns and one of the
                variants at each reset.
            backend: ``"bundled"``, an encyclopedia of over 400 pages that is part of the package;
                ``"mw"``, the API of a MediaWiki such as Wikipedia; or ``"kiwix"``, a kiwix-serve. A
                server draws its own random pages, so there a seed does not determine the episode.
            trawler_kwargs: Arguments of `MediaWikiPages` or `KiwixPages`; None means no arguments.
            page_summary_length: Length of the shown part of a page: a number and ``"characters"``,
                ``"words"``, or ``"sentences"``.
            variant: ``"noregrets"``, ``"oneback"``, ``"freenav"``, or ``"eidetic"``.

        Raises:
            ConfigError: Only one of `max_turns` and `variant` is None, or a value is unknown.
        """
        check_together(max_turns=max_turns, variant=variant)
        self.size: tuple[int, str] | None = None
        if max_turns is not None and variant is not None:
            self.size = (
                check_int("max_turns", max_turns, 1),
                check_choice("variant", variant, tuple(_VARIANTS)),
            )
        self.summary = _summary_length(page_summary_length)
        self.pages = _pages(backend, trawler_kwargs or {})
        self.blocking = backend != "bundled"  # requests to a server block

    def new_game(self) -> None:
        self.turn_limit, self.variant = self.size or self.random.choice(_SIZES)
        start = self._draw_page(None)
        if isinstance(self.pages, BundledPages):
            target = self._page(self.random.choice(within(start.title, self.turn_limit)))
        else:
            target = self._draw_page(start)
        self.target: dict[str, Any] = _as_json(target)
        self.trail: list[str] = []  # titles of the pages before the current one
        self.went_back = False
        self.listed: list[str] = []  # all links shown so far, for the variant eidetic
        self._show(start)

    def rules(self) -> str:
        links = [title for title in self._choices() if title != self.target["title"]]
        example = (links or self._choices())[0]
        return (
            f"Wiki game: go from the page {self.current['title']} to the page {self.target['title']} in at "
            f"most {self.turn_limit} turns. Each turn, go to a page that the present page links to: give its "
            f"title in a box, for example \\boxed{{{example}}}. {_VARIANTS[self.variant]} Each step costs a "
            f"little, so take a short way.\n{self.target['title']}: {self._summary(self.target)}"
        )

    def board(self) -> str:
        links = "\n".join(f"- {title}" for title in self._choices())
        return (
            f"You are on the page {self.current['title']}: {self._summary(self.current)}\n"
            f"You may go to:\n{links}\nTarget: {self.target['title']}."
        )

    def parse(self, text: str) -> str | None:
        return text if undecorated(text) else None

    def play(self, move: str) -> MoveResult:
        if move == BACK:
            return self._go_back()
        title = next((title for title in self._choices() if title == move), None)
        if title is None:
            spellings = [_plain(text) for text in (move, undecorated(move), plain(move))]
            title = next((title for title in self._choices() if _plain(title) in spellings), None)
        if title is None:
            named = move if len(move) <= 80 else f"{move[:80]}..."
            return f"{named} is not among the links.", self.format_error_reward, "illegal"
        page = self._page(title)
        if page.title == self.target["title"]:
            self._leave()
            self._show(page)
            return f"You reached {page.title}.", 1.0, "solved"
        if not page.links and self.variant in ("oneback", "freenav"):
            self.turn += 1
            self.went_back = True
            return (
                f"{page.title} links to nothing: you are back on {self.current['title']}, and this took two "
                "turns.", -0.1, "continue",
            )  # fmt: skip
        self._leave()
        self._show(page)
        if not page.links and not self._choices():
            return f"{page.title} links to nothing. You lost.", -0.05, "lost"
        return f"You are on {page.title}.", -0.05, "continue"

    def progress(self) -> float:
        """Return 1 on the target, else 0."""
        return float(self.current["title"] == self.target["title"])

    def random_move(self, random: Random) -> str:
        return random.choice(self._choices())

    def best_move(self) -> str | None:
        if not isinstance(self.pages, BundledPages):
            return None
        away = distances(self.target["title"])
        return min(self._choices(), key=lambda title: away[title])

    # -- plumbing -----------------------------------------------------------------------------

    def _choices(self) -> Sequence[str]:
        """Return the titles that are legal now."""
        if self.variant != "eidetic":
            links: Sequence[str] = self.current["links"]
            return links
        return [title for title in self.listed if title != self.current["title"]]

    def _go_back(self) -> MoveResult:
        if self.variant not in ("oneback", "freenav"):
            return "There is no going back in this variant.", self.format_error_reward, "illegal"
        if not self.trail:
            return "This is the first page.", self.format_error_reward, "illegal"
        if self.went_back and self.variant == "oneback":
            return "You went back already.", self.format_error_reward, "illegal"
        self._show(self._page(self.trail.pop()))
        self.went_back = True
        return f"You are back on {self.current['title']}.", -0.05, "continue"

    def _leave(self) -> None:
        self.trail.append(self.current["title"])
        self.went_back = False

    def _show(self, page: Page) -> None:
        self.current: dict[str, Any] = _as_json(page)
        if self.variant == "eidetic":
            self.listed = list(dict.fromkeys([*self.listed, *page.links]))

    def _page(self, title: str) -> Page:
        page = self.pages.page(title)
        if page is None:
            raise ServiceError(f"the linked page {title!r} does not exist on the server")
        return page

    def _draw_page(self, start: Page | None) -> Page:
        for _ in range(_DRAWS):
            page = self.pages.random_page(self.random)
            fits = page.links and "(disambiguation)" not in page.title
            if fits and (start is None or page.title != start.title):
                return page
        raise ServiceError(
            f"{_DRAWS} random pages of the server were unusable: without links, or all the same"
        )

    def _summary(self, page: Mapping[str, Any]) -> str:
        length, unit = self.summary
        text: str = page["text"]
        parts: Sequence[str] = text if unit == "characters" else text.split(" " if unit == "words" else ". ")
        if len(parts) <= length:
            return text
        return {"characters": "", "words": " ", "sentences": ". "}[unit].join(parts[:length]) + "..."


def _summary_length(length: Sequence[Any]) -> tuple[int, str]:
    pair = tuple(length) if isinstance(length, (list, tuple)) else ()
    if len(pair) != 2 or pair[1] not in _UNITS:
        raise expected("page_summary_length", length, f"a number and a unit: {join_or(_UNITS)}")
    return check_int("page_summary_length[0]", pair[0], 1), pair[1]


def _pages(backend: str, kwargs: Mapping[str, Any]) -> Pages:
    if backend == "bundled":
        if kwargs:
            raise ConfigError(f"trawler_kwargs={kwargs}: backend='bundled' takes none; they are for a server")
        return BundledPages()
    from gem_envs._games.wiki_servers import KiwixPages, MediaWikiPages  # urllib, for a few

    servers: dict[str, Any] = {"mw": MediaWikiPages, "kiwix": KiwixPages}
    if backend not in tuple(servers):
        raise expected("backend", backend, "bundled, mw, or kiwix")
    try:
        pages: Pages = servers[backend](**dict(kwargs))
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"trawler_kwargs={kwargs} do not fit backend={backend!r}: {error}") from error
    return pages


def _as_json(page: Page) -> dict[str, Any]:
    return {"title": page.title, "text": page.text, "links": list(page.links)}


def _plain(title: str) -> str:
    """Normalize a title for comparison."""
    return title.replace("_", " ").casefold()
