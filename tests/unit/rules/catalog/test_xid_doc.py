"""docs/xid.md is the output of its generator."""

from hack.catalog import xid_doc
from rules.catalog.reasons import reason_for_sxid, sxid_catalog
from rules.catalog.xid import catalog


def test_the_xid_page_is_current() -> None:
    assert xid_doc.PAGE.read_text("utf-8") == xid_doc.page(), "run python -m hack.catalog.xid_doc"


def test_every_xid_in_use_is_described_in_full_sentences() -> None:
    for row in catalog().values():
        assert row.description.endswith("."), row
        assert not row.used or len(row.description) > 20, row


def test_the_nvswitch_catalog_names_numbers_and_decides_nothing() -> None:
    assert len(sxid_catalog()) == 420
    assert sxid_catalog()[20034].mnemonic == "DLPL_LTSSM_FAULT_UP"
    unknown = [row for row in sxid_catalog().values() if row.fatality == "unknown"]
    assert len(unknown) == 183
    assert reason_for_sxid(True).reason == "SXidFatal"
    assert reason_for_sxid(False).reason == "SXidNonFatal"
    assert reason_for_sxid(None).reason == "SXidUnknown"
