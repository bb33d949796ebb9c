"""Who gets an e-mail: a member of a week's audience, or the reason why it gets none."""

from dataclasses import dataclass, replace

from shardpost.values.addresses import Address, UnusableAddress, check_address
from shardpost.weekly_email.model.ledger import DeliveryState


@dataclass(frozen=True)
class Recipient:
    """The recipient of one e-mail."""

    client: str
    name: str
    address: Address
    language: str | None = None


@dataclass(frozen=True)
class Member:
    """A holder, with its contact as of the freeze and its subscription as of the sending.

    `subscribed` is None if the client's record was deleted. It, `name_now` and `email_now` come
    from the newest snapshot, `language` from the record at the freeze.
    """

    client: str
    name: str | None
    email: str | None
    has_contact: bool
    subscribed: bool | None
    name_now: str | None = None
    email_now: str | None = None
    language: str | None = None

    def as_mailed(self, state: DeliveryState | None) -> "Member":
        """Return the member with the contact for its state: a failed one's is its current one."""
        if state is not DeliveryState.FAILED:
            return self
        has_contact = self.subscribed is not None
        return replace(self, name=self.name_now, email=self.email_now, has_contact=has_contact)


@dataclass(frozen=True)
class NotMailed:
    """A client that gets no e-mail, and why; state None: not mailed yet."""

    state: DeliveryState | None
    reason: str


UNSUBSCRIBED = NotMailed(DeliveryState.SUPPRESSED, "not subscribed: since this run began")


def why_no_mail_can_be_written(email: str | None, *, has_contact: bool) -> str | None:
    """Return why a client with that contact cannot be mailed, or None if it can."""
    address = _address(email, has_contact=has_contact)
    return address.reason if isinstance(address, UnusableAddress) else None


def recipient_of(
    member: Member, *, without_contact: DeliveryState | None = DeliveryState.FAILED
) -> Recipient | NotMailed:
    """Return the recipient of the member's e-mail, or why there is none.

    `without_contact` is the state of a client that cannot be mailed.
    """
    if member.subscribed is False:
        return NotMailed(DeliveryState.SUPPRESSED, "not subscribed")
    address = _address(member.email, has_contact=member.has_contact)
    if isinstance(address, UnusableAddress):
        return NotMailed(without_contact, address.reason)
    if member.subscribed is None:
        return NotMailed(
            DeliveryState.SUPPRESSED, "not subscribed: its record in `clients` was deleted"
        )
    return Recipient(member.client, member.name or "", address, member.language)


def _address(email: str | None, *, has_contact: bool) -> Address | UnusableAddress:
    if not has_contact:
        return UnusableAddress("no contact: the client has no record in `clients`")
    return check_address(email)
