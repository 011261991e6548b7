# SPDX-License-Identifier: Apache-2.0
"""The instruction sets that inner loops are compiled for, and how."""

# Results must not depend on the set: no fused multiply-add unless it is written.
LOOP_COPTS = [
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
]

INSTRUCTION_SETS = {
    "avx512": ["-march=x86-64-v4"],
    "avx2": ["-march=x86-64-v3"],
    "sse2": ["-march=x86-64"],
}
