"""Refuses footage that must not be used, by its name.

Trackers are compared on these data sets. A tracker that was trained or tuned on one can't be judged by it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from efftam_ros.core.errors import InputError

RESERVED = {
    "LaSOT": r"la-?sot(-?ext)?",
    "GOT-10k": r"got-?10k?",
    "NfS": r"nfs|need-?for-?speed",
    "TColor-128": r"t-?color-?128|temple-?color(-?128)?",
    "UAVTrack112": r"uav-?track-?112l?",
    "UAV20L": r"uav-?20-?l",
    "UAV123": r"uav-?123",
    "UAVDT": r"uavdt",
    "DTB70": r"dtb-?70",
    "VisDrone": r"vis-?drone(-?sot|-?mot|-?vid|-?det)?(-?20[0-9]{2})?",
    "Anti-UAV": r"anti-?uav[0-9]*",
    "TrackingNet": r"tracking-?net",
    "VOT": r"vot-?(st|lt|rt|rgbd|rgbt|s)?-?20(1[6-9]|2[0-9])|vot-?(lt|rgbd|rgbt)|vots-?[0-9]*",
    "CDTB": r"cdtb",
    "TLP": r"(tiny-?)?tlp(attr)?",
    "Drone-detection-dataset": r"drone-?detection-?(dataset|thesis)",
    "video.on.map": r"video-on-map",
    "OxUvA": r"ox-?uva",
    "AVisT": r"avist",
    "PESMOD": r"pesmod",
    "SeaDronesSee": r"sea-?drones-?see",
    "Stanford Drone": r"stanford-?drone(-?dataset)?",
    "DAVIS": r"davis-?(20)?1[67](-[a-z]+)?|davis",
    "OTB": r"otb-?(20)?(13|15|50|100)?|tracker-benchmark",
    "MOT15": r"(2d)?mot-?(20)?1[5-7]|mot-?20",
    "PETS": r"pets-?(20)?09(-?s2)?(-?l1)?|vtest",
    "TownCentre": r"town-?cent(re|er)(x?vid)?",
}
"""By reserved data set the pattern of its names, in lower case with "-" between words."""

_PATTERNS = {
    name: re.compile(rf"(?:^|-)(?:{pattern})(?:-|$)", re.ASCII) for name, pattern in RESERVED.items()
}


def reserved_name(texts: Iterable[str], but: Collection[str] = ()) -> str | None:
    """Return the reserved data set that one of the texts (repository, path, remark) names; None if none does.

    ``but``: data sets that may be named.
    """
    for text in texts:
        plain = re.sub(r"[^a-z0-9]+", "-", text.lower())
        for name, pattern in _PATTERNS.items():
            if name not in but and pattern.search(plain):
                return name
    return None


def refuse_reserved(texts: Iterable[str], where: str, but: Collection[str] = ()) -> None:
    """Raise InputError if one of the texts names a reserved data set.

    ``where``: the row or file, for the message. ``but``: data sets that may be named.
    """
    name = reserved_name(texts, but)
    if name is not None:
        raise InputError(f"{where} names {name}, which trackers are judged on; leave it out")
