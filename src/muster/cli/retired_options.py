"""Options that commands had in earlier versions, and what is written now. The error for one of them says so."""

RETIRED_OPTIONS = {
    ("sim", "--trace"): "is now --decision-log",
    ("sim", "--story"): "is now --timeline",
    ("sim", "--no-story"): "is now --no-timeline",
    ("run", "--qps"): "was removed: the API server's priority and fairness limits requests",
}
