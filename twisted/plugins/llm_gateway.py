"""The twistd plugin: `twistd llm-gateway`."""

from twisted.application.service import ServiceMaker

llm_gateway = ServiceMaker(
    "LLM gateway",
    "twisted_gateway.tap",
    "A gateway for LLM engines that admits by the engine's own scheduler gauges.",
    "llm-gateway",
)
