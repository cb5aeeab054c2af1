"""Short prompts beside long ones on a real vLLM, with the gateway and without.

    python -m bench mid --out docs         # about half an hour: figures and picture in docs/
    python -m bench mid --repetitions 1

It starts a vLLM on the CPU, with the model of 210 million parameters of the integration suite
(which has to be there: `python -m tests.integration.vllm_cpu`), and a gateway before it.
"""
