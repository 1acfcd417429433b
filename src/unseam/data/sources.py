"""Where the published files come from, and their checksums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["PUBLISHED", "Published", "RemoteFile"]


@dataclass(frozen=True)
class RemoteFile:
    """One published file.

    Attributes:
        filename: its published name.
        urls: addresses to try in turn.
        checksum: ``algorithm:digest`` of the file, or ``None`` where none is published; the first download's digest
            is then recorded beside the file and compared from then on.
        content: SHA-256 of what a gzip file unpacks to, where known: it also fits files that were compressed again.
        size: bytes, where known.
        magic: first bytes, which tell the file from a web page in its place.
    """

    filename: str
    urls: tuple[str, ...]
    checksum: str | None = None
    content: str | None = None
    size: int | None = None
    magic: bytes = b""


@dataclass(frozen=True)
class Published:
    """A published data set: its files, and the reason where they cannot be fetched."""

    name: str
    files: tuple[RemoteFile, ...]
    variant: str | None = None
    note: str = ""

    @property
    def key(self) -> str:
        """Name, with the variant where there are several."""
        return f"{self.name}:{self.variant}" if self.variant else self.name


ZIP, GZIP, HDF5 = b"PK", b"\x1f\x8b", b"\x89HDF"

MNIST_URLS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
FASHION_URLS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
DSPRITES_FILE = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"


def _idx(name: str, urls: tuple[str, ...], *files: tuple[str, int, str | None]) -> Published:
    """The four idx files of a data set, from the checksum, size and content of each."""
    stems = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    found = []
    for stem, (checksum, size, content) in zip(stems, files, strict=True):
        filename = f"{stem}-ubyte.gz"
        mirrors = tuple(url + filename for url in urls)
        found.append(RemoteFile(filename, mirrors, f"sha256:{checksum}", content, size, GZIP))
    return Published(name, tuple(found))


def _mpi3d(variant: str, checksum: str) -> Published:
    filename = f"mpi3d_{variant}.npz"
    urls = (
        f"https://huggingface.co/datasets/waleedgondal/mpi3d/resolve/main/{filename}",
        f"https://storage.googleapis.com/disentanglement_dataset/Final_Dataset/{filename}",
    )
    return Published("mpi3d", (RemoteFile(filename, urls, f"md5:{checksum}", magic=ZIP),), variant)


_ALL = (
    Published(
        "dsprites",
        (
            RemoteFile(
                DSPRITES_FILE,
                (
                    f"https://github.com/google-deepmind/dsprites-dataset/raw/master/{DSPRITES_FILE}",
                    f"https://raw.githubusercontent.com/deepmind/dsprites-dataset/master/{DSPRITES_FILE}",
                ),
                "md5:7da33b31b13a06f4b04a70402ce90c2e",
                magic=ZIP,
            ),
        ),
    ),
    Published(
        "shapes3d",
        (
            RemoteFile(
                "3dshapes.h5",
                ("https://storage.googleapis.com/3d-shapes/3dshapes.h5",),
                "sha256:0a0f6ed98baff276a50f3a081a7434d788da63cb135a98189b2a5b5769be1785",
                size=267_573_662,
                magic=HDF5,
            ),
        ),
    ),
    Published(
        "mpi3d",
        (
            RemoteFile(
                "real3d_complicated_shapes_ordered.npz",
                (
                    "https://drive.usercontent.google.com/download?export=download&confirm=t"
                    "&id=1Tp8eTdHxgUMtsZv5uAoYAbJR1BOa_OQm",
                    "https://drive.google.com/uc?export=download&confirm=t&id=1Tp8eTdHxgUMtsZv5uAoYAbJR1BOa_OQm",
                ),
                magic=ZIP,
            ),
        ),
        "complex",
    ),
    _mpi3d("toy", "55889cb7c7dfc655d6e0277beee88868"),
    _mpi3d("realistic", "59a6225b88b635365f70c91b3e52f70f"),
    _mpi3d("real", "0f33f609918fb5c97996692f91129802"),
    Published(
        "faces3d",
        (RemoteFile("basel_face_renders.pth", ()),),
        note="its licence (Basel Face Model) forbids passing it on: ask the authors of beta-TCVAE "
        "(Chen et al. 2018) for basel_face_renders.pth and pass root= with the file",
    ),
    _idx(
        "mnist",
        MNIST_URLS,
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            9_912_422,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            28_881,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            1_648_877,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            4_542,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    _idx(
        "fashion_mnist",
        FASHION_URLS,
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880, None),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515, None),
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102, None),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148, None),
    ),
)

PUBLISHED: Mapping[str, Published] = {entry.key: entry for entry in _ALL}
"""Published data sets by key: the name, or ``name:variant`` where there are several."""
