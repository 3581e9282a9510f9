"""`python -m tests.zerogpu_space ...` is `python app.py ...` on a Space with ZeroGPU, with the real `spaces` package.

SPACES_ZERO_DEVICE_API_URL names the scheduler. The CPU stands in for the GPU: what a torch without CUDA lacks is put
there, and the weights that `spaces` would move to the GPU stay where they are.
"""

from __future__ import annotations

import sys

import app


def main() -> None:
    """Pretend, then run the app."""
    # Imported first, as the app does; neither may need torch, which must come after `spaces`.
    import chat.web.api
    import chat.web.page

    sys.meta_path.insert(0, _BeforeEmulation())
    import chat.engine.zerogpu  # noqa: F401

    _stay_on_cpu()
    app.main()


class _BeforeEmulation:
    """Looks on as `spaces` goes for torch, which nobody may have imported by then."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "spaces.zero.torch":
            assert "torch" not in sys.modules, "torch was imported before spaces"
            import torch

            if torch.version.cuda is None:
                torch.version.cuda = "12.8"
                torch._C._cuda_init = lambda: None
                torch.cuda._is_in_bad_fork = bool  # a function that says no, and can be pickled


def _stay_on_cpu() -> None:
    import torch
    from spaces.zero import torch as emulation
    from spaces.zero.torch import patching

    def move(callback: object) -> None:
        torch.set_num_threads(1)  # a fork has none of its parent's threads
        for fake, original in patching.cuda_aliases.items():
            fake.data = original

    emulation.pack = lambda: 0
    emulation.init = lambda uuid: None
    emulation.move = move


if __name__ == "__main__":
    main()
