"""One block of a fold: from what was read of each source to the block's output cells.

A *span* is what one source gave for its part of the block's source cells. Spans that lie
side by side make a *strand*. A gather copies one strand; a cascade merge folds ``fan_in``
consecutive cells of one strand; an all-time fold joins the same cell of one strand for
each window.

Source: semantics 4.1, 5, 6.1-6.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweep.errors import ArtifactError
from sweep.fold.digest import DigestCells, digest_counts, merge_digests
from sweep.fold.exact import fold_exact
from sweep.fold.level import Cells, assemble
from sweep.fold.packed import fold_packed
from sweep.fold.ragged import Ragged, interleave
from sweep.model.fields import ArraySpec, DigestField, ExactField, FieldMap, PackedField

__all__ = ["Blank", "FoldedBlock", "Span", "cells_read", "gather_block", "merge_block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one source gave for source cells ``start`` to ``stop`` of a block.

    ``arrays`` holds None for an array that the source does not have.
    """

    source: int
    start: int
    stop: int
    arrays: Mapping[str, Cells | None]

    @property
    def n_cells(self) -> int:
        """Source cells of the span."""
        return self.stop - self.start

    def has(self, name: str) -> bool:
        """Whether the source has the array."""
        return self.arrays.get(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """A source that lacked one half of a packed field, and the output cells it concerns."""

    field: PackedField
    reason: str
    source: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedBlock:
    """The output cells of a block, the sources refused in it, and half pairs met."""

    arrays: Mapping[str, Cells]
    refused: frozenset[int]
    blanks: tuple[Blank, ...] = ()


def cells_read(fields: FieldMap, spans: Sequence[Span], *, merging: bool) -> int:
    """The meter of semantics 6.7: cells of every array range read for one block."""
    names = [spec.name for spec in fields.arrays()]
    if merging:
        names += [f.of for f in fields if isinstance(f, PackedField)]
    return sum(span.n_cells for span in spans for name in names if span.has(name))


def gather_block(fields: FieldMap, n_cells: int, spans: Sequence[Span]) -> FoldedBlock:
    """Copy the spans side by side; what no span covers is fill."""
    refused: set[int] = set()
    arrays: dict[str, Cells] = {}
    for each in fields:
        usable = _usable(each, spans, refused)
        for spec in each.arrays():
            arrays[spec.name] = _strand(spec, n_cells, usable)
    return FoldedBlock(arrays=arrays, refused=frozenset(refused))


def merge_block(fields: FieldMap, n_out: int, fan_in: int, strands: Sequence[Sequence[Span]]) -> FoldedBlock:
    """Fold a block.

    Parameters
    ----------
    fields : FieldMap
    n_out : int
        Output cells of the block.
    fan_in : int
        Source cells of one strand for each output cell.
    strands : sequence of sequences of Span
        One strand for a cascade merge; one for each window, with ``fan_in`` 1, for an
        all-time fold.

    Raises
    ------
    ArtifactError
        A source's companions do not match its digests.
    """
    refused: set[int] = set()
    blanks: list[Blank] = []
    arrays: dict[str, Cells] = {}
    n_source = n_out * fan_in
    for each in fields:
        if isinstance(each, ExactField):
            arrays[each.name] = _exact(each, n_source, fan_in, strands)
        elif isinstance(each, DigestField):
            usable = [_usable(each, spans, refused) for spans in strands]
            arrays |= _digest(each, n_source, fan_in, usable)
        else:
            arrays[each.name] = _packed(each, fields, n_out, fan_in, strands, blanks)
    return FoldedBlock(arrays=arrays, refused=frozenset(refused), blanks=tuple(blanks))


def _usable(
    each: ExactField | DigestField | PackedField, spans: Sequence[Span], refused: set[int]
) -> list[Span]:
    """The spans that may feed a field: a digest's payload and companions come together or not at all."""
    if not isinstance(each, DigestField) or not each.siblings():
        return list(spans)
    names = (each.name, *each.siblings())
    usable = []
    for span in spans:
        held = sum(span.has(name) for name in names)
        if held in (0, len(names)):
            usable.append(span)
        else:
            refused.add(span.source)
    return usable


def _strand(spec: ArraySpec, n_cells: int, spans: Sequence[Span]) -> Cells:
    for span in spans:
        cells = span.arrays.get(spec.name)
        if cells is not None and isinstance(cells, Ragged) != spec.is_ragged:
            raise ArtifactError(
                f"array {spec.name!r} of a source is {'ragged' if isinstance(cells, Ragged) else 'dense'}, "
                f"the manifest declares it {'ragged' if spec.is_ragged else 'dense'}",
                kind="array-class",
            )
    return assemble(spec, n_cells, [(s.start, s.stop, s.arrays.get(spec.name)) for s in spans])


def _dense(spec: ArraySpec, n_cells: int, spans: Sequence[Span]) -> NDArray[np.generic]:
    cells = _strand(spec, n_cells, spans)
    assert not isinstance(cells, Ragged)
    return cells


def _ragged(spec: ArraySpec, n_cells: int, strands: Sequence[Sequence[Span]]) -> Ragged:
    parts = [_strand(spec, n_cells, spans) for spans in strands]
    return interleave([part for part in parts if isinstance(part, Ragged)])


def _exact(
    each: ExactField, n_source: int, fan_in: int, strands: Sequence[Sequence[Span]]
) -> NDArray[np.generic]:
    (spec,) = each.arrays()
    folded = None
    for spans in strands:
        part = fold_exact(_dense(spec, n_source, spans), fan_in=fan_in, law=each.law, fill=each.fill)
        if folded is not None:
            pair = np.stack([folded, part], axis=1).ravel()
            part = fold_exact(pair, fan_in=2, law=each.law, fill=each.fill)
        folded = part
    assert folded is not None
    return folded


def _digest(
    each: DigestField, n_source: int, fan_in: int, strands: Sequence[Sequence[Span]]
) -> dict[str, Cells]:
    payload, *companions = each.arrays()
    by_name = {spec.name: _ragged(spec, n_source, strands) for spec in companions}
    merged = merge_digests(
        DigestCells(
            payload=_ragged(payload, n_source, strands),
            locations=by_name.get(each.locations),
            times=by_name.get(each.times),
        ),
        fan_in=fan_in * len(strands),
        delta=each.budget,
        dtype=each.dtype,
    )
    arrays: dict[str, Cells] = {each.name: merged.payload}
    if merged.locations is not None:
        arrays[each.locations] = merged.locations
    if merged.times is not None:
        arrays[each.times] = merged.times
    return arrays


def _packed(
    each: PackedField,
    fields: FieldMap,
    n_out: int,
    fan_in: int,
    strands: Sequence[Sequence[Span]],
    blanks: list[Blank],
) -> NDArray[np.generic]:
    (spec,) = each.arrays()
    divisor = fields.get(each.of)
    n_source = n_out * fan_in
    words = [_dense(spec, n_source, spans) for spans in strands]
    counts = [_counts(divisor, n_source, spans) for spans in strands]
    folded = fold_packed(
        np.stack(words, axis=1).ravel(), np.stack(counts, axis=1).ravel(), fan_in=fan_in * len(strands)
    )
    for span in (span for spans in strands for span in spans):
        has_word, has_divisor = span.has(each.name), span.has(each.of)
        if has_word == has_divisor:
            continue
        blank = Blank(
            field=each,
            reason="divisor-missing" if has_word else "word-missing",
            source=span.source,
            start=span.start // fan_in,
            stop=-(-span.stop // fan_in),
        )
        blanks.append(blank)
        if not has_word:
            folded[blank.start : blank.stop] = each.fill
    return folded


def _counts(
    divisor: ExactField | DigestField | PackedField | None, n_source: int, spans: Sequence[Span]
) -> NDArray[np.int64]:
    """Observations in each source cell, by the divisor's digests; none where it is absent."""
    if not isinstance(divisor, DigestField):
        return np.zeros(n_source, dtype=np.int64)
    return digest_counts(_ragged(divisor.arrays()[0], n_source, [spans]), divisor.dtype)
