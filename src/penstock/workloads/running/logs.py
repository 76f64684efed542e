"""Generated log lines in the formats of a web server (Apache) and of a login service (OpenSSH).

A line depends only on its number and the seed, so a source can continue at any number. Ten lines cover one second.
"""

from datetime import UTC, datetime, timedelta
from random import Random

START = datetime(2026, 1, 5, tzinfo=UTC)
LINES_A_SECOND = 10
USERS = ("admin", "root", "test", "guest", "oracle", "postgres", "backup", "web", "git", "anna")
PAGES = ("index.html", "login.php", "favicon.ico", "robots.txt", "images/logo.png", "cgi-bin/status")
MODULES = ("core", "proxy", "ssl", "rewrite", "mpm_event")

# The relative frequency of each kind of line, and its text; `{name}` is random for each line.
WEB = (
    (30, "notice", "jk2_init() Found child {process} in scoreboard slot {slot}"),
    (20, "notice", "workerEnv.init() ok /etc/httpd/conf/workers{slot}.properties"),
    (18, "error", "mod_jk child workerEnv in error state {slot}"),
    (14, "error", "[client {address}] File does not exist: /var/www/html/{page}"),
    (5, "error", "[client {address}] client denied by server configuration: /var/www/html/{page}"),
    (8, "info", "AH{process:05}: {module} serves request {process} from {address}"),
    (5, "warn", "{module} took {process} ms to answer {address}"),
)
LOGIN = (
    (32, "Failed password for {user} from {address} port {port} ssh2"),
    (14, "Failed password for invalid user {user} from {address} port {port} ssh2"),
    (14, "Invalid user {user} from {address}"),
    (16, "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost={address}"),
    (12, "Received disconnect from {address}: 11: Bye Bye [preauth]"),
    (6, "Accepted password for {user} from {address} port {port} ssh2"),
    (4, "reverse mapping checking getaddrinfo for {address} failed - POSSIBLE BREAK-IN ATTEMPT!"),
    (2, "Server listening on {address} port {port}."),
)
_WEB_WEIGHTS = [row[0] for row in WEB]
_LOGIN_WEIGHTS = [row[0] for row in LOGIN]


class LogLines:
    """Generates the log line of a number; half of the lines are the web server's."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def __call__(self, number: int) -> str:
        """Return the line."""
        rng = Random((self.seed << 64) + number)  # noqa: S311  nothing here is secret
        time = START + timedelta(seconds=number // LINES_A_SECOND)
        process = rng.randint(1000, 32767)
        drawn = {
            "address": f"10.{rng.randint(0, 3)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
            "port": rng.randint(1024, 65535),
            "process": process,
            "slot": rng.randint(0, 9),
            "user": rng.choice(USERS),
            "page": rng.choice(PAGES),
            "module": rng.choice(MODULES),
        }
        if rng.random() < 0.5:
            [(_, level, message)] = rng.choices(WEB, _WEB_WEIGHTS)
            return f"[{time:%a %b %d %H:%M:%S %Y}] [{level}] {message.format(**drawn)}"
        [(_, message)] = rng.choices(LOGIN, _LOGIN_WEIGHTS)
        return f"{time:%b %d %H:%M:%S} gate sshd[{process}]: {message.format(**drawn)}"
