"""A plugin of your own, by gangs: at night only important gangs may start.

Use it in a policy as `./quiet_hours.py:QuietHours`, or as `quiet_hours:QuietHours` if its folder is on the Python path.
"""

from dataclasses import dataclass

from muster.engine.hooks import Ask
from muster.engine.session import Session
from muster.model.effects import YES, Verdict

DAY_S = 24 * 3600


@dataclass(frozen=True)
class QuietHours:
    """From `begin` to `end` o'clock (UTC) no gang starts whose priority is below `priority`."""

    begin: int = 22
    end: int = 6
    priority: int = 1000
    name: str = "quiet-hours"

    def admit(self, s: Session, ask: Ask) -> Verdict:
        since_begin = (s.now - self.begin * 3600) % DAY_S
        lasts = (self.end - self.begin) * 3600 % DAY_S
        if since_begin >= lasts or ask.gang.priority >= self.priority:
            return YES
        why = f"quiet hours until {self.end:02d}:00 UTC: priority {ask.gang.priority} is below {self.priority}"
        # `at`: from then on time alone changes the answer, so the gang is tried again at that moment.
        return Verdict(ok=False, why=why, code="QuietHours", at=s.now + lasts - since_begin)
