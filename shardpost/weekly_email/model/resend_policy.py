"""Which clients a run of the weekly e-mail mails again, and how often."""

from dataclasses import dataclass

from shardpost.weekly_email.model.ledger import DeliveryState

# How often a mail whose delivery is unknown may be sent again, per client and week.
MOST_RESENDS = 1


@dataclass(frozen=True)
class ResendPolicy:
    """Which clients a run mails besides the open ones: unknown, failed or suppressed ones."""

    resend_unknown: bool = False
    again_failed: bool = False
    again_suppressed: bool = False

    def selects(self, state: DeliveryState | None, resends: int = 0) -> bool:
        """Tell whether a client in that state (None: open) is mailed by this run.

        A `sending` without outcome is unknown; `sent` is final. What was sent again `resends`
        times, and is still unknown, is left to a person.
        """
        match state:
            case None:
                return True
            case DeliveryState.SENDING | DeliveryState.UNKNOWN:
                return self.resend_unknown and resends < MOST_RESENDS
            case DeliveryState.FAILED:
                return self.again_failed
            case DeliveryState.SUPPRESSED:
                return self.again_suppressed
            case DeliveryState.SENT:
                return False
