"""The report as JUnit XML, in the form that both Ant's schema and Jenkins' take.

https://github.com/windyroad/JUnit-Schema (Ant: each testcase has one child at most, each suite
its `properties`, `system-out` and `system-err`), and junit-10.xsd of Jenkins' xUnit plugin.
"""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from twisted_gateway import __version__
from twisted_gateway.check.results import Report, Result, Verdict
from twisted_gateway.check.table import summary, told

SUITE = "llm-gateway-check"


def junit(report: Report, hostname: str) -> bytes:
    """Give the XML, with its declaration, in UTF-8.

    Args:
        report: the run; its texts hold no characters that XML does not have.
        hostname: of this machine.
    """
    suites = Element("testsuites")
    suite = SubElement(
        suites,
        "testsuite",
        {
            "name": SUITE,
            "package": SUITE,
            "id": "0",
            "hostname": hostname or "localhost",
            "timestamp": datetime.fromtimestamp(report.started, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
            "time": f"{report.seconds:.3f}",
            "tests": str(len(report.results)),
            "failures": str(report.count(Verdict.FAILED) - report.errors),
            "errors": str(report.errors),
            "skipped": str(report.count(Verdict.SKIPPED)),
        },
    )
    properties = SubElement(suite, "properties")
    for name, value in (
        ("url", report.url),
        ("admin", report.admin),
        ("run_id", report.run_id),
        ("version", __version__),
    ):
        SubElement(properties, "property", {"name": name, "value": value})
    for result in report.results:
        _case(suite, result)
    SubElement(suite, "system-out").text = _log(report)
    SubElement(suite, "system-err")
    indent(suites)
    document: bytes = tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(suite: Element, result: Result) -> None:
    case = SubElement(
        suite,
        "testcase",
        {
            "classname": f"{SUITE}.{result.name}",
            "name": result.subject or "gateway",
            "time": f"{result.seconds:.3f}",
        },
    )
    if result.verdict is Verdict.FAILED:
        about = {"type": result.name, "message": result.said}
        SubElement(case, "error" if result.internal else "failure", about).text = told(result)
    elif result.verdict is Verdict.SKIPPED:
        SubElement(case, "skipped", {"message": result.said})


def _log(report: Report) -> str:
    """What Ant's schema has no place for in a testcase."""
    lines = []
    for one in report.results:
        told = ": ".join(part for part in (one.subject, one.said) if part)
        ids = f"[{', '.join(one.request_ids)}]" if one.request_ids else ""
        lines.append(" ".join(part for part in (one.verdict.value, one.name, told, ids) if part))
    return "\n".join([*lines, summary(report)])
