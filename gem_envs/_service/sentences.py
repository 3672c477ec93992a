"""What a message means: whether a customer agrees, and whether an assistant declines.

A message is read sentence by sentence, and a sentence clause by clause. A clause counts with its negations:
"I cannot cancel it" declines, "I cannot say no" does not, and "I have not cancelled it" is no claim.
Questions, quotations, and conditions claim nothing. The rules are for English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

YesNo: TypeAlias = Literal["yes", "no"]
Stand: TypeAlias = Literal["declined", "promised", "claimed"]


class _Sentence(NamedTuple):
    text: str
    """In lower case, without quotations and the final mark."""
    question: bool


_QUOTED = re.compile(r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb|(?<!\w)'[^']*'(?!\w)")
_BY_RULE = re.compile(r"\b(?:rules?|policy|policies|terms)\b[^.!?]{0,20}$", re.IGNORECASE)
_LONGEST = 2000
"""Number of characters above which a sentence, and a message with it, means nothing."""
_SENTENCE = re.compile(r"(?:[^.!?\n]|\.(?=\w))+[.!?]*")
_CLAUSE = re.compile(
    r"[,;:()\u2013\u2014]|\s--?\s|\b(?:but|because|since|so|and|yet|although|though|however|while"
    r"|instead)\b"
)
_CONDITION = re.compile(
    r"\b(?:if|unless|provided|assuming|as long as|in case|suppose|only (?:when|after|once)|were it"
    r"|had it)\b"
)
_POLITE = re.compile(
    r"\bif (?:you (?:can|could|like|want|would|wish|please|may|don't mind|do not mind|must|have to)"
    r"|(?:that|it|this)(?:'s| is) (?:ok|okay|fine|possible|necessary|all right|needed)"
    r"|possible|necessary|need be)\b[^,;]*"
)
_NOT = re.compile(r"\b(?:not|never|no|nor|neither|cannot|nothing|none|nobody|without)\b|n't\b")
_NO_NEGATION = re.compile(
    r"\b(?:not (?:only|just|merely)|no (?:problem|worries|doubt|trouble|issue|matter|need|wonder)"
    r"|(?:do not|don't|let's not|no need to|without) (?:wait|hesitate|worry|hesitation|delay"
    r"|further ado))\b"
)
_NOT_NO = re.compile(
    r"\b(?:not|never|cannot|\w+n't)(?: possibly| ever| really| at all)? (?:say no|refuse|decline"
    r"|object|disagree|deny|"
    r"argue|turn (?:it|that|you|this) down|have said no|mind)\b|\bno(?:t| reason to)? (?:object"
    r"|say no|refuse)\b"
    r"|\b(?:could not|couldn't|cannot|can't) agree more\b|(?:\b(?:do not|don't|cannot|can't) see )?"
    r"\bwhy not\b"
    r"|\bno objections?\b|\bnothing against\b"
)
"""Double negations that say yes."""

_YES = re.compile(
    r"^(?:(?:oh|well|ah|then|now) )?(?:yes|yeah|yep|yup|aye|ok|okay|sure thing|sure|certainly"
    r"|absolutely|definitely|of course"
    r"|by all means|agreed|confirmed|correct|right|exactly|fine|perfect|great|good|excellent"
    r"|wonderful|all right"
    r"|alright|very well|deal|please do|that works)(?: please| then| thanks?| thank you| that's it"
    r"| do| indeed| with me"
    r"| by me| go ahead| for me| it is| i do| you may| you can| sir| everything| to all| to both)*$"
    r"|\b(?:yes|yeah|go ahead|proceed|go for it|do (?:it|that|so|this)|please do|please cancel|carry on"
    r"|(?:i|we)(?: do| fully| hereby| can| both)* (?:agree|confirm|consent|approve)"
    r"|you have my (?:ok|okay|consent|agreement|permission|approval|blessing)"
    r"|(?:i'm|i am|we're|we are) (?:fine|ok|okay|happy|good) with"
    r"|(?:that|this|it|which|everything|all)(?:'s|'d| is| are| sounds?| looks?| seems?| would be"
    r"| will be)"
    r"(?: just| all| perfectly| quite| totally| really| very| absolutely)? (?:ok|okay|fine|right"
    r"|correct|good|great"
    r"|perfect|alright|what i want)|(?:sounds|looks) (?:good|great|fine|perfect|right)|be my guest)\b"
)
_NO = re.compile(
    r"^(?:(?:oh|well|um|hm+) )?(?:no|nope|nah|never|not)\b"
    r"|\b(?:wait|hold on|stop|hang on|leave it|forget it|never mind|not yet|not now|later|let me think"
    r"|on second thought|i (?:refuse|decline|disagree|object))\b"
)
_REPORTED = re.compile(r"(?<!\bi )\b(?:said|says|wrote|told)\b")
"""The words of somebody else."""
_REQUEST = re.compile(
    r"^(?:(?:yes|ok|okay|sure|then|so|and|please) )?(?:could|can|would|will) you (?:please |kindly "
    r"|just |now )*"
    r"(?:do|go|proceed|cancel|change|make|return|exchange|carry)\b|^(?:yes|yeah|yep|sure"
    r"|of course)\b,? \w|^why not\b"
)


def agrees(message: str) -> bool:
    """Return whether a message of a customer agrees, without a condition, to what was proposed.

    The last sentence that says yes or no decides.
    """
    answer: YesNo | None = None
    for sentence in _sentences(message):
        if len(sentence.text) > _LONGEST:
            return False
        answer = _answer(sentence) or answer
    return answer == "yes"


def _answer(sentence: _Sentence) -> YesNo | None:
    if sentence.question:
        if not _REQUEST.search(sentence.text):
            return None
        return "no" if _NOT.search(_NOT_NO.sub("", sentence.text)) else "yes"
    answer: YesNo | None = None
    text = _POLITE.sub("", sentence.text)
    for clause in _clauses(text):
        if _REPORTED.search(clause):
            continue
        plain = _NOT_NO.sub(" yes ", _NO_NEGATION.sub("", clause)).strip()
        if _NO.search(plain):
            answer = "no"
        elif _YES.search(plain):
            answer = "no" if _NOT.search(plain) else "yes"
    return "no" if answer == "yes" and _CONDITION.search(text) else answer


# -- refusal -------------------------------------------------------------------------------------

_ACTION = (
    r"(?:cancel|change|update|redirect|refund|return|exchange|swap|replace|switch|move|credit|alter"
    r"|amend|modify"
    r"|correct|fix|adjust|convert|waive|reimburse|reverse|transfer|grant|arrange|settle|handle|extend)"
)
_DOING = r"(?:cancell?|chang|updat|redirect|refund|return|exchang|swapp|replac|switch|mov|credit|arrang)ing"
_DONE = (
    r"(?:cancell?ed|changed|updated|redirected|refunded|returned|exchanged|swapped|replaced|switched"
    r"|moved|credited"
    r"|altered|amended|modified|corrected|fixed|adjusted|converted|waived|reimbursed|reversed"
    r"|transferred|granted"
    r"|arranged|settled|handled|extended|done|completed|finished|taken care of|sorted)"
)
_SUBJECT = (
    r"(?:it|that|this|everything|all|(?:the|your|this|that)(?: \w+){0,3}"
    r" (?:order|orders|item|items|address|payment|return|refund|exchange|request|variant"
    r"|cancellation|change|account)"
    r"(?: \w*\d\w*)?)"
)
_SOFTLY = r"(?: (?:just|now|already|also|gladly|happily|successfully|both|all|only|actually))*"
_CLAIM = re.compile(
    rf"\b(?:i|we)(?: have|'ve| had)?{_SOFTLY} {_DONE}\b|\b(?:i|we) (?:went|have gone) ahead\b"
    rf"|\b{_SUBJECT}(?:'s| is| are| was| were| has been| have been){_SOFTLY} (?:{_DONE}|approved"
    rf"|accepted|all set)\b"
    rf"|^(?:your |the )?(?:order|refund|return|exchange|address|cancellation) (?:{_DONE}|issued"
    rf"|processed|confirmed)$"
    r"|\b(?:your|the) (?:refund|return|exchange|cancellation|change)s? (?:is|are|has been|was"
    r"|were)(?: now| already)?"
    r" (?:processed|issued|booked|confirmed|registered|initiated|made|under way|on (?:its|the) way)\b"
    rf"|^(?:(?:all|and|now|already|consider it) )*{_DONE}$|\bconsider (?:it|that) done\b"
    r"|\b(?:i|we)(?: have|'ve)? (?:processed|issued|submitted|initiated|approved|authorized) (?:the"
    r"|your|a|it|that)\b"
    r"|\b(?:you're|you are|it's|we're) all set\b|\bi made (?:the|that|this|your|an) (?:change"
    r"|exchange|exception|refund)\b"
)
_PROMISE = re.compile(
    rf"\b(?:will|'ll|going to|about to|let me|happy to|glad to|(?:i|we) can|i'm|i am|we are"
    rf"|we're){_SOFTLY}"
    rf" (?:{_ACTION}|{_DOING}|make an exception|take care of|do (?:it|that|this|so))\b"
    r"|\byou(?: will|'ll) (?:get|receive|have) (?:a|the|your)(?: full)? (?:refund|money|replacement"
    r"|exchange)\b"
)
_RETRACTION = re.compile(
    r"\b(?:i was (?:wrong|mistaken)|that was (?:wrong|a mistake|not right|not true|incorrect)"
    r"|i made a mistake"
    r"|i misspoke|(?:please )?ignore (?:that|what i said)|correction)\b"
)
_UNABLE = re.compile(
    r"\b(?:(?:cannot|can not|can't|could not|couldn't|won't|will not|would not|wouldn't|may not"
    r"|must not|mustn't"
    r"|shall not|am not|are not|is not|isn't|aren't|was not|were not|not|never)"
    r"(?: be)?(?: able to| allowed to| permitted to| going to| possible to| in a position to)?"
    r"|unable to|no way to)"
    r"(?: (?:really|simply|also|just|currently|unfortunately|possibly|now|actually|sadly))*"
    r" (?!wait\b|believe\b|imagine\b|thank\b|complain\b|help but\b|find\b|hear\b|understand\b"
    r"|remember\b|recall\b"
    r"|promise\b|guarantee\b|wonder\b|be (?:sorry|happier|better|easier|charged)|tell you how"
    r"|say how|see why|see any"
    r"|sorry\b|sure\b|worry\b|hesitate\b|know\b|a problem\b|an issue\b|only\b|just\b|difficult\b"
    r"|hard\b|be long\b"
    r"|be a problem\b|take long\b|hurt\b|disappoint\b|let you down|the first|lose\b|yet\b|looked\b"
    r"|checked\b"
    r"|seen\b|found\b|received\b|heard\b|what\b|your fault|ready\b|here\b|aware\b|clear\b|certain\b"
    r"|until\b)\w+"
    r"|\b(?:cannot|can not|can't|could not|couldn't|won't|will not|not able to|not allowed to)$"
    rf"|\b(?:do not|don't|does not|doesn't|did not|didn't) (?:allow|permit|give|offer|accept|share"
    rf"|reveal|support"
    rf"|make|do|take|let|{_ACTION})\b|\bneither {_ACTION}\b"
)
_REFUSAL = re.compile(
    r"\b(?:impossible|too late|ineligible|out of (?:my|our) hands|beyond (?:my|our) (?:power|control"
    r"|authority)"
    r"|no (?:longer|exceptions?|option|possibility|returns?|refunds?)|none of (?:this|that"
    r"|these) is possible)\b"
    r"|\b(?:must|have to|has to|had to|need to|i|we)(?: therefore| respectfully"
    r"| unfortunately)* (?:be )?"
    r"(?:decline|declined|refuse|refused|reject|rejected|deny|denied|turn (?:it|that|this|you"
    r"|your request) down"
    r"|say no|pass)\b|\b(?:request|this|that|it) (?:is|was|has been) (?:declined|refused|rejected"
    r"|denied)\b"
    r"|\b(?:rules?|policy|policies|terms)(?: \w+){0,2} (?:forbids?|prohibits?|excludes?|prevents?"
    r"|rules? (?:it|that|this)"
    r" out|stops?)\b|\b(?:against|violates?|breaks?|contrary to|forbidden by|prohibited by|excluded by)"
    r" (?:the|our|my|shop|company)(?: \w+)? ?(?:rules?|policy|policies|terms|instructions)\b|\b(?:is"
    r"|are|be) "
    r"(?:forbidden|prohibited|excluded|ruled out|out of the question)\b"
    r"|\bonly (?:within|until|before|while)\b|\b(?:nothing|little) (?:more |else )?(?:i|we) can do\b"
    r"|\bonly(?: \w+){0,4} (?:can|may|could|are allowed to|is allowed to) be\b|\b(?:can|may"
    r"|could) only (?:be )?\w+"
    r"|\b(?:outside|past|after|beyond|over) (?:of )?(?:the|our)(?: \w+)? ?(?:return|exchange|30"
    r"|thirty|deadline|window|period"
    r"|limit|time|rules?|policy)\b|\b(?:window|period|deadline|time limit)(?: for \w+)? (?:is|has"
    r"|was) (?:over|passed|expired|ended|closed)\b"
    r"|\b(?:stays?|remains?|must stay|leave (?:it|that|the \w+)) (?:exactly )?(?:as (?:it"
    r"|they) (?:is|are)|unchanged)\b"
)
_PLAIN_NO = re.compile(
    r"^(?:(?:i'm|i am|we are|we're|sorry|afraid|unfortunately|regrettably|sadly|very|so|well|to say) ?)*"
    r"(?:no|nope|not|not this time|not possible|no can do|not allowed|no chance|no sorry)$"
)
_NOT_REFUSED = re.compile(
    r"\b(?:not|never|cannot|\w+n't|nothing|no(?: one| reason| need"
    r"| cause)?)(?: \w+){0,2} (?:impossible|unable|too late"
    r"|declined?|refused?|reject(?:ed)?|den(?:y|ied)|say no|against|forbid|forbidden|prohibit(?:ed)?"
    r"|excluded?|turn down"
    r"|ruled out|stop|prevent)\b|\bcould(?:n't| not) agree more\b"
)
_NEGATED_CLAIM = re.compile(
    rf"\b(?:not|never|nothing|none|neither|no|cannot|without)\b.*\b{_DONE}\b|n't\b.*\b{_DONE}\b"
)
_HYPOTHETICAL = re.compile(r"\b(?:could|would|might|'d)\b")


def declines(messages: str) -> bool:
    """Return whether the messages of an assistant decline a request.

    They do if a sentence declines and no later one promises to do it. A claim that something was changed is
    false where a request has to be declined, so nothing declines with it unless it is taken back later.
    """
    stand: Stand | None = None
    for sentence in _sentences(messages):
        if len(sentence.text) > _LONGEST:
            return False
        if _RETRACTION.search(sentence.text):
            stand = None
        if stand != "claimed":
            stand = _stand(sentence) or stand
    return stand == "declined"


def _stand(sentence: _Sentence) -> Stand | None:
    if sentence.question:
        return None
    conditional = _CONDITION.search(sentence.text) is not None
    found: Stand | None = None
    for clause in _clauses(sentence.text):
        plain = _NO_NEGATION.sub("", clause).strip()
        if conditional and (_CONDITION.search(plain) or _HYPOTHETICAL.search(plain)):
            continue
        if _CLAIM.search(plain) and not _NEGATED_CLAIM.search(plain):
            return "claimed"
        if _NOT_REFUSED.search(plain):
            continue
        if _declined(plain):
            found = "declined"
        elif not conditional and not _NOT.search(plain) and _PROMISE.search(plain):
            found = "promised"
    return found


def _declined(clause: str) -> bool:
    return any(pattern.search(clause) for pattern in (_UNABLE, _REFUSAL, _PLAIN_NO, _NEGATED_CLAIM))


# -- sentences -----------------------------------------------------------------------------------


def _sentences(message: str) -> Iterator[_Sentence]:
    text = message.replace("\u2019", "'").replace("\u2018", "'")
    text = _QUOTED.sub(
        lambda quote: quote[0] if _BY_RULE.search(text[max(0, quote.start() - 60) : quote.start()]) else " ",
        text,
    )
    for sentence in _SENTENCE.findall(text):
        words = " ".join(sentence.lower().strip(" .!?*_\"'").split())
        if words:
            yield _Sentence(words, sentence.rstrip(" *_\"'").endswith("?"))


def _clauses(text: str) -> Iterator[str]:
    for clause in _CLAUSE.split(text):
        if clause is not None and clause.strip():
            yield clause.strip()
