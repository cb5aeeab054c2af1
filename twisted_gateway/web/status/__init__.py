"""The status of the gateway, for people and scripts.

    endpoint.py     the handlers and the one timer
    facts.py        what is so, as the tree of `/status.json`
    reasons.py      why requests wait, in words
    page.py         the page: its frame and its board; tables.py, trends.py and drawing.py are parts
    text.py         the same as a table for terminals
    streams.py      those who watch
    static/         style, script, icon; assets.py reads them

Everything that is shown is read off the tree of facts; nothing else asks a gate or an observer.
"""
