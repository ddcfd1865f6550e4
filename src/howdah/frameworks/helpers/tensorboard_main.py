"""Start TensorBoard without TensorFlow. Run with the user's interpreter; standard library only.

Where TensorFlow can be imported, TensorBoard imports it: 646 MB and 6.5 s instead of 83 MB and
1 s. TensorBoard itself asks for a module ``tensorboard.compat.notf`` first and uses its built-in
stub of TensorFlow's file functions where that exists. So it is made to exist.
"""

import sys
import types


def main():
    try:
        import tensorboard.compat
    except ImportError:
        print(
            f"tensorboard is not installed in the environment of {sys.executable}; install it "
            "there (pip install tensorboard), or name an interpreter that has it: "
            "[tensorboard] python = ...",
            file=sys.stderr,
        )
        return 1
    name = "tensorboard.compat.notf"
    module = types.ModuleType(name, "Tells TensorBoard to do without TensorFlow.")
    sys.modules[name] = module
    setattr(tensorboard.compat, "notf", module)  # noqa: B010 - it is not there to be typed

    from tensorboard.main import run_main

    return run_main()


if __name__ == "__main__":
    sys.exit(main())
