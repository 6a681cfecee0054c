"""CAUSEWAY_VISIBLE_DEVICES, a machine without a driver, and processes that were forked."""

import pytest

NAMES = """
import torch
print([torch.DEVICE.get_device_name(i) for i in range(torch.DEVICE.device_count())])
"""


pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def names(run, module):
    if module.device_count() < 2:
        pytest.skip("needs two devices")
    return eval(run(NAMES, CAUSEWAY_VISIBLE_DEVICES=None).stdout)


@pytest.mark.parametrize("order", ["0", "1", "1,0", " 1 , 0 "])
def test_devices_are_chosen_and_reordered(run, names, order):
    wanted = [names[int(i)] for i in order.split(",")]
    assert eval(run(NAMES, CAUSEWAY_VISIBLE_DEVICES=order).stdout) == wanted


def test_empty_hides_all(run):
    run(
        """
        import torch
        assert torch.DEVICE.device_count() == 0 and not torch.DEVICE.is_available()
        assert not torch.accelerator.is_available()
        torch.manual_seed(0)
        try:
            torch.empty(1, device="DEVICE")
        except RuntimeError as error:
            assert "CAUSEWAY_VISIBLE_DEVICES" in str(error), error
        else:
            raise AssertionError
        """,
        CAUSEWAY_VISIBLE_DEVICES="",
    )


@pytest.mark.parametrize(
    ("value", "token"),
    [("0,zwei", "zwei"), ("0,0", "0"), ("0,99", "99"), ("-1", "-1"), ("1_0", "1_0")],
)
def test_invalid_token_is_named(run, value, token):
    done = run(
        """
        import torch
        from causeway import ConfigError
        for use in (torch.DEVICE.device_count, lambda: torch.empty(1, device="DEVICE")):
            try:
                use()
            except ConfigError as error:
                print(error)
            else:
                raise AssertionError
        """,
        CAUSEWAY_VISIBLE_DEVICES=value,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(token in line and "CAUSEWAY_VISIBLE_DEVICES" in line for line in lines)


def test_variable_set_after_import_counts(run, names):
    run(
        """
        import os, torch
        os.environ["CAUSEWAY_VISIBLE_DEVICES"] = "1"
        assert torch.DEVICE.device_count() == 1
        torch.ones(1, device="DEVICE:0")
        """,
        CAUSEWAY_VISIBLE_DEVICES=None,
    )


def test_no_driver_is_no_device_with_the_kept_reason(run, tmp_path):
    missing = tmp_path / "libcw_gone.so"
    missing.write_text("no library")
    run(
        """
        import torch
        name = torch._C._get_privateuse1_backend_name()
        module = torch.get_device_module(name)
        assert not module.is_available() and module.device_count() == 0
        assert not torch.accelerator.is_available()
        module.manual_seed_all(0)
        torch.manual_seed(0)
        for use in (module.init, module.current_device, module.synchronize, module.Stream,
                    module.get_device_properties, lambda: torch.empty(1, device=name)):
            try:
                use()
            except RuntimeError as error:
                assert "libcw_gone.so" in str(error), error
            else:
                raise AssertionError(use)
        """,
        CAUSEWAY_VENDOR=str(missing),
        CAUSEWAY_DEVICE_NAME=None,
        PYTHONWARNINGS="ignore",
    )


def test_fork_after_use_is_a_clear_error_in_the_child(run):
    run(
        """
        import os, torch, warnings
        warnings.simplefilter("ignore")
        x = torch.ones(2, device="DEVICE")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert torch.DEVICE._is_in_bad_fork() and not torch.DEVICE.is_initialized()
                torch.manual_seed(0)
                new = lambda: torch.ones(2, device="DEVICE")
                for use in (new, lambda: x + 1, torch.DEVICE.synchronize):
                    try:
                        use()
                    except RuntimeError as error:
                        assert "spawn" in str(error) and "fork" in str(error), error
                    else:
                        raise AssertionError
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert (x + 1).sum().item() == 4
        """
    )


def test_fork_before_use_works_in_the_child_or_says_why_not(run):
    run(
        """
        import os, torch, warnings
        warnings.simplefilter("ignore")
        assert torch.DEVICE.device_count() >= 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if torch.ones(2, device="DEVICE").sum().item() == 2 else 1
            except RuntimeError as error:  # of a runtime that has threads once it counted devices
                code = 0 if "DEVICE" == "opencl" and "spawn" in str(error) else 1
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        """
    )
