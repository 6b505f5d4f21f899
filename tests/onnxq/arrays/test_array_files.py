"""Arrays are streamed from files, compressed or not."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from onnxq.arrays import array_files
from onnxq.arrays.array_files import StoredStack, in_memory, open_npz
from onnxq.errors import LoadError


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("size", [1, 2, 3, None])
def test_pieces_join_to_the_whole(order: str, size: int | None, tmp_path: Path) -> None:
    array = np.asarray(np.arange(42.0).reshape(7, 2, 3), order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", a=array)
    np.savez_compressed(tmp_path / "c.npz", a=array)
    stacks = [
        in_memory(array),
        StoredStack(tmp_path / "a.npy"),
        open_npz(tmp_path / "b.npz")["a"],
        open_npz(tmp_path / "c.npz")["a"],
    ]
    for stack in stacks:
        assert stack.shape == (7, 2, 3)
        pieces = list(stack.pieces(size))
        assert [len(p) for p in pieces][:-1] == [size or 7] * (len(pieces) - 1)
        np.testing.assert_array_equal(np.concatenate(pieces), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_large_file_is_not_held_in_memory(save: object, tmp_path: Path) -> None:
    array = np.zeros((200, 50_000), np.float32)  # 40 MB
    save(tmp_path / "a.npz", x=array)  # type: ignore[operator]
    del array
    tracemalloc.start()
    count = sum(1 for _ in open_npz(tmp_path / "a.npz")["x"].pieces(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200
    assert peak < 3_000_000


def test_members_are_opened_only_when_asked_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(2), labels=np.array([{}], object))
    stacks = open_npz(tmp_path / "a.npz")
    assert stacks["x"].shape == (2,)
    with pytest.raises(LoadError, match=r"a\.npz.*Python objects"):
        _ = stacks["labels"].shape


def test_the_users_array_is_never_handed_out() -> None:
    array = np.zeros((2, 2), np.float32)
    for piece in in_memory(array).pieces(1):
        piece += 1
    assert not array.any()


def test_ragged_samples_are_refused() -> None:
    with pytest.raises(LoadError, match="not an array"):
        in_memory([[1], [1, 2]])


# -- headers -----------------------------------------------------------------------------------


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """The bytes of an .npy file with that header."""
    return (
        b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header.encode() + data
    )


def header(shape: str, kind: str = "'<f4'", fortran: bool = False) -> str:
    return f"{{'descr': {kind}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (header("(-1, 4)"), r"shape is \[-1, 4\]"),
        (header("(4611686018427387904,)"), "16 bytes follow"),
        (header(f"({2**62}, {2**62})"), "16 bytes follow"),
        (header("(5,)"), r"float32 of shape \[5\], but 16 bytes follow"),
        (header("(4611686018427387904, 0)"), "16 bytes follow"),
        (header("(4,)", "'|O'"), "Python objects"),
        (header("(4,)", "[('a', '<i2'), ('b', '<i2')]"), "not numbers"),
        (header("(4,)", "('<i2', (2,))"), "not numbers|cannot be read"),
        (header("(4,)", "'|S0'"), "not numbers"),
        (header("(4,)", "'nonsense'"), "cannot be read"),
        (header("(4.5,)"), "cannot be read"),
        (header("(" * 4000), "cannot be read"),
        ("{" + " " * 60_000 + "}", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_what_a_header_cannot_say_is_refused_before_anything_is_read(
    text: str, why: str, tmp_path: Path
) -> None:
    content = npy(text, bytes(16))
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("a.npy", content)
    for stack in (StoredStack(tmp_path / "a.npy"), open_npz(tmp_path / "b.npz")["a"]):
        tracemalloc.start()
        with pytest.raises(LoadError, match=why):
            list(stack.pieces(1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20_000_000


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\x93NUMPY\x03\x00", b"\x80\x04K\x01."])
def test_what_is_no_array_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(LoadError, match="cannot be read"):
        _ = StoredStack(tmp_path / "a.npy").shape
    with pytest.raises(LoadError, match="cannot be read"):
        open_npz(tmp_path / "a.npz")


def lying(path: Path, claimed: int, content: bytes) -> None:
    """An archive whose directory claims another size of its only member."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    data = bytearray(made.getvalue())
    at = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, at + 24, claimed)
    path.write_bytes(data)


@pytest.mark.parametrize("claimed", [200, 3 * 2**30])
def test_a_directory_that_lies_is_found_out(claimed: int, tmp_path: Path) -> None:
    lying(tmp_path / "a.npz", claimed, npy(header("(1001, 4)"), bytes(16_000)))
    stack = open_npz(tmp_path / "a.npz")["x"]
    with pytest.raises(LoadError, match=r"bytes follow|cannot be read"):
        list(stack.pieces(1001))


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    for magic, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.index(magic) + flags] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(LoadError, match=r"cannot be read: .*encrypted"):
        _ = open_npz(tmp_path / "a.npz")["x"].shape


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for _ in range(2):
            archive.writestr("x.npy", npy(header("(4,)"), bytes(16)))
    with pytest.raises(LoadError, match="same name"):
        open_npz(tmp_path / "a.npz")


def test_a_piece_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "LARGEST_PIECE", 100)
    np.savez(tmp_path / "a.npz", x=np.ones((9, 5)))
    stack = open_npz(tmp_path / "a.npz")["x"]
    assert len(list(stack.pieces(2))) == 5
    for size in (3, None):
        with pytest.raises(LoadError, match="the limit is 100"):
            list(stack.pieces(size))


def test_a_large_array_in_fortran_order_is_mapped_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_files, "LARGEST_WHOLE", 10**6)
    array = np.asfortranarray(np.arange(2 * 10**6, dtype=np.float32).reshape(20, 10**5))  # 8 MB
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "b.npz", x=array)
    tracemalloc.start()
    for number, piece in enumerate(StoredStack(tmp_path / "a.npy").pieces(1)):
        np.testing.assert_array_equal(piece[0], array[number])
    with pytest.raises(LoadError, match="Fortran order") as caught:
        list(open_npz(tmp_path / "b.npz")["x"].pieces(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "ascontiguousarray" in caught.value.fix
    assert peak < 3_000_000


def test_an_empty_array_in_fortran_order_has_no_pieces(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(np.ones((0, 4, 2))))
    (tmp_path / "b.npy").write_bytes(npy(header("(0, 4)", fortran=True)))
    for name in "ab":
        assert list(StoredStack(tmp_path / f"{name}.npy").pieces(1)) == []


def test_a_file_that_may_not_be_read_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(2))

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("zipfile.ZipFile", denied)
    with pytest.raises(LoadError, match=r"a\.npz' cannot be read: Permission denied") as caught:
        open_npz(tmp_path / "a.npz")
    assert "permissions" in caught.value.fix
