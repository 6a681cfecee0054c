"""Words that a kernel for several kinds of chips may not have: a wave has 64 lanes on some, 32 on
others.
"""

from __future__ import annotations

import re

# CUDA's and HIP's words for what the lanes of one warp do together, and a lane's number made of an
# item's. No text that is compiled for several kinds of chips may have one: a wave has 64 lanes on
# some chips, 32 on others. What has them on purpose asks the chip, and belongs to one vendor. A dot
# product of bytes is a lane's own.
WORDS = re.compile(
    r"\b(__shfl\w*|__ballot\w*|__(any|all)(_sync)?|__activemask|__syncwarp|__match_\w+|__reduce_\w+"
    r"|__lane_id|warpSize|__popcll?|__ffs(ll)?|cooperative_groups|__builtin_amdgcn_(?!sdot4\b)\w+)\b"
    r"|0xffffffffu?\s*,\s*\w+\s*,|(LANE|item|threadIdx\.x)\s*\)?\s*(%\s*32|/\s*32|&\s*31|>>\s*5)\b"
)
