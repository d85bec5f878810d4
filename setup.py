"""The build: five top-level folders become the one package `ascend_k3`. Tool settings are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

# folder of the repository -> package that it is installed as
FOLDERS = {
    "ascend_k3": "ascend_k3",
    "ops": "ascend_k3.ops",
    "parallel": "ascend_k3.parallel",
    "serving": "ascend_k3.serving",
    "train": "ascend_k3.train",
}


def packages() -> list[str]:
    """Every folder with an `__init__.py` in the five, by the name that it is installed as."""
    names = list(FOLDERS.values())
    for folder, package in FOLDERS.items():
        names += [f"{package}.{name}" for name in find_packages(str(ROOT / folder))]
    return names


def version() -> str:
    """`__version__` of ascend_k3/version.py, read and not imported: importing would need the package's dependencies."""
    text = (ROOT / "ascend_k3" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    if found is None:
        raise RuntimeError(
            'ascend_k3/version.py has no line of the form __version__ = "1.2.3"; setup.py reads the version there.'
        )
    return found[1]


setup(
    name="ascend-k3",
    version=version(),
    description="Kimi K3 on Ascend NPUs: the model, its checkpoints and its operators, exact on a plain CPU",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The ascend_k3 authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Operating System :: POSIX :: Linux",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.10",
    package_dir={package: folder for folder, package in FOLDERS.items()},
    packages=packages(),
    package_data={
        "ascend_k3": ["py.typed"],
        # kernels, the emulator's headers and the NPU binding are compiled on the user's machine
        "ascend_k3.ops": ["**/*.h", "**/*.hpp", "**/*.cpp", "**/CMakeLists.txt"],
    },
    include_package_data=False,
    entry_points={"console_scripts": ["ascend-k3 = ascend_k3.cli:main"]},
    install_requires=[
        "torch>=2.10",  # tensors, operator registration, autograd
        "safetensors>=0.8",  # the format of a checkpoint's weights
        "numpy",  # safetensors writes torch tensors through it
        "tiktoken",  # the byte-pair encoder of the tokenizer
        "regex",  # the tokenizer's word pattern has \p{...} classes, which the standard library's re has not
        "pillow>=12.3",  # decoding and resizing images
        "tqdm",  # progress bars
    ],
    extras_require={
        "plot": ["matplotlib"],  # --plot: timelines of kernels
        "dev": ["pytest", "hypothesis", "ruff", "mypy", "matplotlib"],
    },
)
