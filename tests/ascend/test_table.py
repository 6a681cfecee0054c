"""The vendor of Huawei's NPUs without any library of CANN's: it loads, says what is missing, and
its table of operators is checked by a checker that finds what is planted.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rows import declared, differences, rows

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.process, pytest.mark.once]

WITHOUT = """
import torch, causeway
from causeway import _C
print(torch.ascend.is_available())
print(_C.vendor_notes())
try:
    torch.ones(3, device="ascend")
except RuntimeError as error:
    print(error)
"""


def test_import_torch_works_without_cann_and_says_what_is_missing(
    run_python: Run, ascend_library: Path
) -> None:
    given = {
        "CAUSEWAY_VENDOR": str(ascend_library),
        "CAUSEWAY_ASCEND_LIBRARIES": "/nowhere",
    }
    said = run_python(WITHOUT, **given).stdout
    assert said.startswith("False\n")
    assert (
        said.count("CANN's runtime libascendcl.so cannot be opened (/nowhere/libascendcl.so:") == 2
    )
    assert "CANN's operators libopapi.so cannot be opened" in said
    assert "set_env.sh" in said
    assert "/dev/davinci" in said


def test_the_table_has_at_least_250_operators_each_once(ascend_library: Path) -> None:
    table = rows(ascend_library)
    operators = list(dict.fromkeys(row.operator for row in table))
    assert len(operators) >= 250
    assert not [row for row in table if "?" in row.parameters]
    for needed in (
        "aten::convolution_overrideable", "aten::convolution_backward",
        "aten::native_batch_norm.out",
        "aten::native_layer_norm.out", "aten::addmm.out", "aten::bmm.out", "aten::_softmax.out",
        "aten::gelu.out", "aten::embedding_dense_backward.out", "aten::index_select.out",
        "aten::sigmoid.out", "aten::tanh.out", "aten::upsample_nearest2d.out",
        "aten::max_pool2d_with_indices.out", "aten::_foreach_addcdiv.Scalar_out",
    ):  # fmt: skip
        assert needed in operators


HEADER = """
/* aclnnAddGetWorkspaceSize(int wrong); is in a comment */
ACLNN_API aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other,
    const aclScalar* alpha, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);
aclnnStatus aclnnMmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out,
    int8_t cubeMathType, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnSmoothL1LossGetWorkspaceSize(const aclTensor* self, const aclTensor* target,
    int64_t reduction, FLOAT beta, aclTensor* result, uint64_t* workspaceSize, aclOpExecutor** e);
"""


@pytest.mark.parametrize(("kind", "wrong"), [("float", 0), ("double", 1), ("float x, bool", 1)])
def test_a_parameter_of_another_kind_is_found(
    kind: str, wrong: int, ascend_library: Path, tmp_path: Path
) -> None:
    (tmp_path / "aclnn_few.h").write_text(HEADER.replace("FLOAT", kind))
    headers = declared(tmp_path)
    assert headers["aclnnAdd"] == "ttst"
    assert headers["aclnnMm"] == "tttc"
    found = differences(rows(ascend_library), headers)
    assert len(found) == wrong
    assert all("aten::smooth_l1_loss.out: aclnnSmoothL1Loss takes" in line for line in found)
