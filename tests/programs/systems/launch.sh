#!/bin/bash
# Starts the training on the first chip.
source /usr/local/Ascend/ascend-toolkit/set_env.sh
export HCCL_CONNECT_TIMEOUT=1200
export ASCEND_RT_VISIBLE_DEVICES=0
PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64 python launched.py --device npu --config launched.yaml
