"""The page and the catalogs are what their generators make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hack.catalog import generate, xid_doc
from rules.catalog.reasons import reason_for_sxid, sxid_catalog
from rules.catalog.xid import catalog

SHARED = Path(__file__).resolve().parents[5] / "shared" / "data" / "catalog"


def test_the_xid_page_is_current() -> None:
    assert xid_doc.PAGE.read_text("utf-8") == xid_doc.page(), "run python -m hack.catalog.xid_doc"


def test_the_page_names_every_xid() -> None:
    page = xid_doc.page()
    for row in catalog().values():
        if row.used:
            assert f"| {row.xid} | {row.name} |" in page


def test_every_xid_in_use_is_described_in_full_sentences() -> None:
    for row in catalog().values():
        assert row.says.endswith("."), row
        assert not row.used or len(row.says) > 20, row


@pytest.mark.parametrize(
    ("name", "key", "rows"),
    [
        ("xids", "xids", generate.xid_rows),
        ("nvlink5", "rules", generate.nvlink5_rows),
        ("sxids", "sxids", generate.sxid_rows),
    ],
)
def test_the_catalogs_are_current(name: str, key: str, rows: object) -> None:
    if not SHARED.exists():
        pytest.skip("the published catalogs do not lie beside this checkout")
    assert callable(rows)
    stored = json.loads((generate.DATA / f"{name}.json").read_text("utf-8"))
    assert stored["version"] == generate.VERSION
    assert stored[key] == json.loads(json.dumps(rows(SHARED)))


def test_a_missing_catalog_is_one_sentence_and_64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--catalog", str(tmp_path)]) == 64
    assert "--catalog" in capsys.readouterr().out


def test_the_nvswitch_catalog_names_numbers_and_decides_nothing() -> None:
    assert len(sxid_catalog()) == 420
    assert sxid_catalog()[20034].mnemonic == "DLPL_LTSSM_FAULT_UP"
    unknown = [row for row in sxid_catalog().values() if row.fatality == "unknown"]
    assert len(unknown) == 183
    assert reason_for_sxid(True).reason == "SXidFatal"
    assert reason_for_sxid(False).reason == "SXidNonFatal"
    assert reason_for_sxid(None).reason == "SXidUnknown"
