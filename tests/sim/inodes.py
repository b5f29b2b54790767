"""The content of a simulated disk: files and directories, each in the state that readers see and in the durable one.

A file's writes and a directory's changes of names wait in order between the two. Directories are files of a kind: the
name of a directory is an entry of its parent, so that a loss of power may take a name and keep its file, keep a
name and lose the bytes, or take a directory with all that was durable inside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR_BYTES = 512
# The probabilities that a change of names is the first lost one; 1 loses all that were not synced.
LOST_NAMES = (0.0, 0.1, 0.5, 1.0)


@dataclass
class Write:
    """One change to a file's bytes that is not durable yet; `data` None is a truncation to `position`."""

    position: int
    data: bytes | None


@dataclass
class Inode:
    """The bytes of one file, which may have several names or none."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Write] = field(default_factory=list)
    modified_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        apply_write(self.seen, Write(position, data))
        self.pending.append(Write(position, data))

    def truncate(self, size: int) -> None:
        apply_write(self.seen, Write(size, None))
        self.pending.append(Write(size, None))

    def survive(self, random: Random) -> None:
        """Become what a power loss leaves."""
        content = bytearray(self.durable)
        kept = random.randint(0, len(self.pending))
        for number, write in enumerate(self.pending):
            if number < kept:
                apply_write(content, write)
            elif number == kept and write.data is not None:
                apply_write(content, torn(write, bytes(content), random))
            elif random.random() < 0.1:
                apply_write(content, write)
        self.seen = content
        self.durable = bytearray(content)
        self.pending.clear()

    def sync(self) -> None:
        """Make durable what is pending; writes that an earlier failed sync dropped stay dropped, though still seen."""
        for write in self.pending:
            apply_write(self.durable, write)
        self.pending.clear()


def apply_write(content: bytearray, write: Write) -> None:
    """Change bytes as the system call did; a gap is filled with zeros."""
    if write.data is None:
        if write.position < len(content):
            del content[write.position :]
        else:
            content.extend(bytes(write.position - len(content)))
        return
    if write.position > len(content):
        content.extend(bytes(write.position - len(content)))
    content[write.position : write.position + len(write.data)] = write.data


def torn(write: Write, content: bytes, random: Random) -> Write:
    """A write of which only whole sectors from its front arrived, with or without the length of the rest, or all but
    its front, or its length without its bytes, or nothing.

    Bytes that were there before stay what they were or become what was written: only new length can be empty.
    """
    assert write.data is not None, "a truncation is done or not"
    shape = random.random()
    if shape < 0.2:
        end = write.position + len(write.data)
        return Write(write.position, content[write.position : end].ljust(len(write.data), b"\0"))
    first_boundary = SECTOR_BYTES - write.position % SECTOR_BYTES
    boundary = random.choice([0, *range(first_boundary, len(write.data), SECTOR_BYTES)])
    before = content[write.position : write.position + len(write.data)].ljust(len(write.data), b"\0")
    if shape < 0.4:
        return Write(write.position, write.data[:boundary] + before[boundary:])
    if shape < 0.5:
        return Write(write.position, before[:boundary] + write.data[boundary:])
    return Write(write.position, write.data[:boundary])


@dataclass(eq=False)
class Directory:
    """The names in one directory; its own name is in its parent."""

    seen: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = Inode | Directory


@dataclass(eq=False)
class NameChange:
    """One system call that is not durable yet: it gives names, or takes them (None), in one directory or in two.

    A rename is one change: both of its steps or neither.
    """

    steps: list[tuple[Directory, str, Node | None]]

    def touches(self, directories: list[Directory]) -> bool:
        return any(step[0] in directories for step in self.steps)

    def make_durable(self) -> None:
        for directory, name, node in self.steps:
            change_name(directory.durable, name, node)


class Tree:
    """All names of one disk, from the root on."""

    def __init__(self) -> None:
        self.root = Directory()
        self._pending: list[NameChange] = []

    # -- finding ------------------------------------------------------------------------------------------------

    def find(self, path: Path) -> Node | None:
        """The file or directory with this path, as readers see it; None if there is none."""
        node: Node = self.root
        for name in path.parts[1:]:
            if not isinstance(node, Directory):
                return None
            below = node.seen.get(name)
            if below is None:
                return None
            node = below
        return node

    def directory(self, path: Path) -> Directory | None:
        node = self.find(path)
        return node if isinstance(node, Directory) else None

    def files(self) -> dict[Path, Inode]:
        """Every file that readers see, by name."""
        found: dict[Path, Inode] = {}
        _collect(Path("/"), self.root, found)
        return found

    def uncertain(self) -> set[Path]:
        """Every name that a loss of power may take or bring back, and every file of which it may take bytes."""
        found: set[Path] = set()
        _collect_uncertain(Path("/"), self.root, found)
        return found

    # -- changing -----------------------------------------------------------------------------------------------

    def change(self, *steps: tuple[Directory, str, Node | None]) -> None:
        """Change names at once for readers, and durably some time later."""
        for directory, name, node in steps:
            change_name(directory.seen, name, node)
        self._pending.append(NameChange(list(steps)))

    def _concerning(self, directory: Directory) -> list[NameChange]:
        """The changes that a sync of a directory makes durable, in order: its own, and those that they depend on."""
        wanted, found = [directory], []
        for change in reversed(self._pending):
            if change.touches(wanted):
                found.append(change)
                wanted += [step[0] for step in change.steps if step[0] not in wanted]
        return found[::-1]

    def sync(self, directory: Directory) -> None:
        """Make the names in a directory durable."""
        done = self._concerning(directory)
        for change in done:
            change.make_durable()
        self._pending = [change for change in self._pending if change not in done]

    def discard(self, directory: Directory) -> None:
        """Let the sync of a directory fail: its changes never become durable, though readers see them."""
        lost = self._concerning(directory)
        self._pending = [change for change in self._pending if change not in lost]

    def lose_power(self, random: Random) -> None:
        """Keep what was synced and, of the rest, a front: of all changes, or of those of each directory by itself."""
        lost, together = random.choice(LOST_NAMES), random.random() < 0.5
        ended: list[Directory] = []
        for change in self._pending:
            if (together and ended) or change.touches(ended) or random.random() < lost:
                ended += [step[0] for step in change.steps]
            else:
                change.make_durable()
        self._pending.clear()
        _survive(self.root, random)

    def put(self, files: dict[Path, bytes], directories: list[Path]) -> None:
        """Start with these names, all durable."""
        self.root = Directory()
        self._pending.clear()
        for path in [*directories, *(path.parent for path in files)]:
            node = self.root
            for name in path.parts[1:]:
                below = node.seen.setdefault(name, Directory())
                assert isinstance(below, Directory), f"{path}: {name} is a file"
                node = below
        for path, data in files.items():
            parent = self.directory(path.parent)
            assert parent is not None
            parent.seen[path.name] = Inode(bytearray(data), bytearray(data))
        _settle(self.root)

    def directories(self) -> list[Path]:
        """Every directory that readers see, each behind the one that holds it."""
        found: list[Path] = []
        _collect_directories(Path("/"), self.root, found)
        return found


def change_name(names: dict[str, Node], name: str, node: Node | None) -> None:
    """Change a directory as the system call did."""
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _collect(path: Path, directory: Directory, found: dict[Path, Inode]) -> None:
    for name, node in directory.seen.items():
        if isinstance(node, Directory):
            _collect(path / name, node, found)
        else:
            found[path / name] = node


def _collect_uncertain(path: Path, directory: Directory, found: set[Path]) -> None:
    for name in {**directory.seen, **directory.durable}:
        node = directory.seen.get(name)
        if node is not directory.durable.get(name) or (isinstance(node, Inode) and node.pending):
            found.add(path / name)
        if isinstance(node, Directory):
            _collect_uncertain(path / name, node, found)


def _collect_directories(path: Path, directory: Directory, found: list[Path]) -> None:
    for name, node in directory.seen.items():
        if isinstance(node, Directory):
            found.append(path / name)
            _collect_directories(path / name, node, found)


def _survive(directory: Directory, random: Random) -> None:
    """Keep the files that are reachable by durable names, as a loss of power leaves them; the rest is gone."""
    directory.seen = dict(directory.durable)
    for node in directory.seen.values():
        if isinstance(node, Directory):
            _survive(node, random)
        else:
            node.survive(random)


def _settle(directory: Directory) -> None:
    directory.durable = dict(directory.seen)
    for node in directory.seen.values():
        if isinstance(node, Directory):
            _settle(node)
