"""Writes the tracks of targets over the ground as KML or GeoJSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from efftam_flight.position.geodesy import GeoPoint
from efftam_ros.core.errors import InputError

KML = "http://www.opengis.net/kml/2.2"
DEGREE_DIGITS = 7  # decimals of latitude and longitude; the last one is about a centimetre


class TrackPoint(NamedTuple):
    """One position of a track. ``time_s``: time of the video. ``accuracy``: standard deviation, m."""

    time_s: float
    point: GeoPoint
    accuracy: float


Tracks = Mapping[int, Sequence[TrackPoint]]


def write_track(path: Path, tracks: Tracks) -> None:
    """Write the tracks of all targets in the format that the file's ending demands. Raise OSError if the file
    can't be written, InputError for an unknown ending."""
    text = {".kml": as_kml, ".geojson": as_geojson, ".json": as_geojson}.get(path.suffix.lower())
    if text is None:
        raise InputError(f"--track {path} has an unknown ending; give a name that ends in .kml or .geojson")
    path.write_text(text(tracks), encoding="utf-8")


def as_kml(tracks: Tracks) -> str:
    """Return a KML document with a placemark for each target."""
    ElementTree.register_namespace("", KML)
    root = ElementTree.Element(f"{{{KML}}}kml")
    document = _child(root, "Document")
    _child(document, "name", "Targets on the ground")
    for target_id, points in tracks.items():
        mark = _child(document, "Placemark")
        _child(mark, "name", f"Target {target_id}")
        first, last = points[0], points[-1]
        _child(mark, "description", f"{first.time_s:.1f} s to {last.time_s:.1f} s of the video")
        shape = _child(mark, "Point" if len(points) == 1 else "LineString")
        _child(shape, "altitudeMode", "clampToGround")
        _child(shape, "coordinates", " ".join(",".join(map(str, _coordinates(p))) for p in points))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def as_geojson(tracks: Tracks) -> str:
    """Return a GeoJSON collection with one feature for each target, whose properties contain the times and
    the accuracies of its points."""
    features = []
    for target_id, points in tracks.items():
        places = [_coordinates(p) for p in points]
        one = len(points) == 1
        features.append(
            {
                "type": "Feature",
                "geometry": {
                    "type": "Point" if one else "LineString",
                    "coordinates": places[0] if one else places,
                },
                "properties": {
                    "target": target_id,
                    "times_s": [round(p.time_s, 3) for p in points],
                    "accuracies_m": [round(p.accuracy, 2) for p in points],
                },
            }
        )
    return json.dumps({"type": "FeatureCollection", "features": features}) + "\n"


def _coordinates(point: TrackPoint) -> list[float]:
    place = point.point
    return [
        round(place.longitude, DEGREE_DIGITS),
        round(place.latitude, DEGREE_DIGITS),
        round(place.altitude, 2),
    ]


def _child(parent: Any, name: str, text: str | None = None) -> Any:
    child = ElementTree.SubElement(parent, f"{{{KML}}}{name}")
    child.text = text
    return child
