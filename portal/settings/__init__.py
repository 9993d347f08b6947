"""Settings, all from the environment (``AIF_*``): ``production`` (the default), ``development``, ``testing``."""
