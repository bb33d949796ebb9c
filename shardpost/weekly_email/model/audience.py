"""A member of a week's audience, and whether it can be mailed."""

from dataclasses import dataclass

from shardpost.weekly_email.model.addresses import UnusableAddress, check_address
from shardpost.weekly_email.model.ledger import DeliveryState
from shardpost.weekly_email.model.message import Recipient


@dataclass(frozen=True)
class Member:
    """A client that holds: its contact as of the freeze, its subscription as of the sending.

    `subscribed` is None if the client has no record any more.
    """

    client: str
    name: str | None
    email: str | None
    has_contact: bool
    subscribed: bool | None


@dataclass(frozen=True)
class NotMailed:
    """A client that gets no e-mail, and why."""

    state: DeliveryState
    reason: str


def recipient_of(member: Member) -> Recipient | NotMailed:
    """Return to whom the member's e-mail goes, or why it gets none."""
    if member.subscribed is False:
        return NotMailed(DeliveryState.SUPPRESSED, "not subscribed")
    if not member.has_contact:
        return NotMailed(DeliveryState.FAILED, "no contact: the client has no record in `clients`")
    address = check_address(member.email)
    if isinstance(address, UnusableAddress):
        return NotMailed(DeliveryState.FAILED, address.reason)
    if member.subscribed is None:
        return NotMailed(
            DeliveryState.SUPPRESSED, "not subscribed: its record in `clients` was deleted"
        )
    return Recipient(member.client, member.name or "", address)
