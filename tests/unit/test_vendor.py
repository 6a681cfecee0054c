"""How the vendor is found, and what it is told."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from causeway import VendorError, config, vendor


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAUSEWAY_VENDOR", raising=False)


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    points = {name: EntryPoint(name, f"os.path:{name}", vendor.GROUP) for name in names}
    monkeypatch.setattr(vendor, "installed", lambda: points)
    import os.path

    for name in names:
        monkeypatch.setattr(os.path, name, lambda name=name: f"/lib/{name}.so", raising=False)


def test_the_simulated_chip_is_found_where_nothing_else_is() -> None:
    chosen = vendor.choose()
    assert chosen.name == "sim"
    assert chosen.library == vendor.sim_library()
    assert Path(chosen.library).is_file()


def test_the_only_other_vendor_wins_over_the_simulated_chip(monkeypatch) -> None:
    install(monkeypatch, "sim", "acme")
    assert vendor.choose() == vendor.Vendor(
        "acme", "/lib/acme.so", "the only vendor installed besides sim"
    )


def test_of_two_vendors_none_is_guessed(monkeypatch) -> None:
    install(monkeypatch, "sim", "acme", "zeta")
    with pytest.raises(VendorError, match=r"2 vendors are installed, acme, zeta, and none"):
        vendor.choose()


def test_a_vendor_is_chosen_by_name(monkeypatch) -> None:
    install(monkeypatch, "sim", "acme", "zeta")
    monkeypatch.setenv("CAUSEWAY_VENDOR", "zeta")
    assert vendor.choose().library == "/lib/zeta.so"


def test_a_vendor_is_chosen_by_what_its_programming_is_called(monkeypatch) -> None:
    install(monkeypatch, "sim", "amd", "nvidia")
    for asked, taken in {"hip": "amd", "rocm": "amd", "cuda": "nvidia"}.items():
        monkeypatch.setenv("CAUSEWAY_VENDOR", asked)
        chosen = vendor.choose()
        assert (chosen.name, chosen.library) == (taken, f"/lib/{taken}.so")
    monkeypatch.setenv("CAUSEWAY_VENDOR", "maca")  # is none of these
    with pytest.raises(VendorError, match="'maca': no vendor of that name"):
        vendor.choose()


def test_an_unknown_name_raises_with_the_nearest(monkeypatch) -> None:
    monkeypatch.setenv("CAUSEWAY_VENDOR", "simm")
    with pytest.raises(VendorError, match=r"'simm': no vendor of that name.*did you mean 'sim'"):
        vendor.choose()


def test_a_library_is_chosen_by_path(monkeypatch, tmp_path: Path) -> None:
    library = tmp_path / "libcw_mychip.so"
    library.touch()
    monkeypatch.setenv("CAUSEWAY_VENDOR", str(library))
    assert vendor.choose() == vendor.Vendor("mychip", str(library), "CAUSEWAY_VENDOR")
    monkeypatch.setenv("CAUSEWAY_VENDOR", str(tmp_path / "no.so"))
    with pytest.raises(VendorError, match="there is no such file"):
        vendor.choose()


def test_a_broken_vendor_package_is_named(monkeypatch) -> None:
    point = EntryPoint("acme", "no_such_package:library", vendor.GROUP)
    monkeypatch.setattr(vendor, "installed", lambda: {"acme": point})
    with pytest.raises(VendorError, match=r"vendor 'acme' \(no_such_package:library\).*ModuleNot"):
        vendor.choose()


@pytest.mark.parametrize(
    ("file", "name"),
    [("libcw_sim.so", "sim"), ("mychip.so.1", "mychip"), ("libacme-x2.so", "acme_x2")],
)
def test_a_library_is_named_after_its_file(file: str, name: str) -> None:
    assert vendor.name_of_library(Path(file)) == name


def test_a_vendor_is_told_its_own_settings(monkeypatch) -> None:
    for variable in ("CAUSEWAY_SIM_MEMORY", "CAUSEWAY_ACME_TURBO"):
        monkeypatch.delenv(variable, raising=False)
    sim, acme = vendor.Settings("sim"), vendor.Settings("acme")
    assert sim("memory") is None
    assert acme("turbo") is None
    monkeypatch.setenv("CAUSEWAY_SIM_MEMORY", "1GiB")
    monkeypatch.setenv("CAUSEWAY_ACME_TURBO", "yes")
    assert sim("memory") == "1GiB"
    assert acme("turbo") == "yes"
    assert acme("memory") is None


def test_the_headers_for_vendors_are_in_the_package() -> None:
    folder = Path(vendor.include_dir()) / "causeway"
    assert {"abi.h", "dlpack.h"} <= {path.name for path in folder.iterdir()}
    assert config.PREFIX == "CAUSEWAY_"


def test_the_core_is_told_what_python_set_and_no_bad_value(monkeypatch) -> None:
    for name in config.SETTINGS.values():
        monkeypatch.delenv(name.variable, raising=False)
    sim = vendor.Settings("sim")
    assert sim.pushed() == {}
    monkeypatch.setenv("CAUSEWAY_SIM_DEVICES", "3")  # the core reads the environment itself
    monkeypatch.setenv("CAUSEWAY_SIM_LATENCY_US", "many")
    assert sim.pushed() == {"latency_us": None}
    with pytest.warns(UserWarning, match="takes effect"), config.using(sim_comm="none"):
        assert sim.pushed() == {"latency_us": None, "comm": "none"}
    assert sim.pushed() == {"latency_us": None}
