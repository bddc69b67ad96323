"""What a description has and rigidgrad does not, said once, by name; and what of a URDF that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from rigidgrad.errors import ModelWarning, PassedOverWarning, warn
from rigidgrad.model.xml import Element, quoted

_LISTED = 5  # names of one kind

# elements of <robot>, <link> and <joint> that are read, or have no bearing on what is computed:
# looks, contacts (a problem says what touches) and which shapes are compared
_ROBOT = {"link", "joint", "material", "rigidgrad", "verbose", "self_collide"}
_ROBOT |= {"collision_filter_group", "drake:collision_filter_group", "gazebo", "transmission"}
_LINK = {"visual", "collision", "inertial", "contact", "collision_checking", "gravity"}
_LINK |= {"self_collision_checking", "self_filter", "surface", "verbose", "kinematic"}
_JOINT = {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic", "calibration"}
# for ROS and simulators: sensors, plugins, controllers, interfaces
_ROS = {"gazebo", "transmission", "ros2_control", "sensor", "plugin", "safety_controller"}
_ROS |= {"controller_gains", "traits", "hardwareInterface", "mujoco", "bullet", "isaac_sim"}
_ATTRIBUTES = {
    "dynamics": {"damping", "friction", "armature"},
    "axis": {"xyz"},
    "mimic": {"joint", "multiplier", "offset"},
    "limit": {"lower", "upper", "velocity", "effort"},
}
_SPRINGS = {"springStiffness", "springReference", "dampingFactor"}


def named(what: str, names: Sequence[str]) -> str:
    """Things of one kind, by name; those without are counted."""
    if not any(names):
        return counted([what] * len(names))[0]
    shown = ", ".join(quoted(name) for name in names[:_LISTED])
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} × {what} ({shown}{more})" if len(names) > 1 else f"{what} {shown}"


def counted(tags: Iterable[str]) -> list[str]:
    """Things without names, by kind."""
    return [f"{n} × {tag}" if n > 1 else tag for tag, n in Counter(tags).items()]


def tell(
    name: str,
    missing: Sequence[str],
    passed: Sequence[str],
    kept: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> None:
    """One warning about the robot `name`: of what is `missing` in its dynamics, what is `kept` for
    those who ask for it, what is passed over as it is for other programs, and limits in doubt.
    """
    parts = []
    if missing:
        parts.append(f"left out of '{name}', as rigidgrad does not model it: {', '.join(missing)}")
    if kept:
        parts.append(f"of '{name}', kept for plants that are asked for it: {'; '.join(kept)}")
    if doubts:
        parts.append(f"limits of '{name}' taken as none: {'; '.join(doubts)}")
    if passed:
        of = "" if parts else f" in '{name}'"
        parts.append(f"passed over{of}, as other programs need it: {', '.join(passed)}")
    if parts:
        warn("; ".join(parts), ModelWarning if missing or kept or doubts else PassedOverWarning)


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


# --- URDF -----------------------------------------------------------------------------------------


def tell_urdf(
    robot: Element, with_texts: Callable[[], Element], doubts: Sequence[str] = ()
) -> None:
    """Tells what of a URDF is not read, and what is in doubt; `with_texts` reads it again with what
    stands in elements, where that is needed.
    """
    tags = {element.tag for element in robot.children}
    tags |= {c.tag for e in robot.children if e.tag == "link" for c in e.children}
    if tags & {"gazebo", "transmission", "gravity", "kinematic"}:
        robot = with_texts()
    missing: dict[str, list[str]] = {}
    passed: list[str] = []
    for what, owner in _found(robot):
        if owner is None:
            passed.append(what)
        else:
            missing.setdefault(what, []).append(owner)
    tell(
        robot.attrib.get("name", ""),
        [named(what, _once(owners)) for what, owners in missing.items()],
        counted(passed),
        doubts=doubts,
    )


def _found(robot: Element) -> Iterator[tuple[str, str | None]]:
    """(what, whose); of what other programs need, (what, None)."""
    for element in robot.children:
        own = element.attrib.get("name") or element.attrib.get("reference", "")
        if element.tag in _ROS:
            yield f"<{element.tag}>", None
        elif element.tag not in _ROBOT:
            yield f"<{element.tag}>", own
        if element.tag == "transmission":
            yield from _of_transmission(element, own)
        elif element.tag == "gazebo":
            yield from _of_gazebo(element, own)
        elif element.tag in ("link", "joint"):
            tags = _LINK if element.tag == "link" else _JOINT
            if element.attrib.get("type") == "fixed":
                continue  # whatever else it says means nothing
            for child in element.children:
                if child.tag in _ROS:
                    yield f"<{child.tag}>", None
                elif child.tag not in tags:
                    yield f"<{child.tag}> of {element.tag}", own
                if element.tag == "link":
                    yield from _switched(child, own)
                elif child.tag in _ATTRIBUTES:
                    known = _ATTRIBUTES[child.tag]
                    if others := ", ".join(a for a in child.attrib if a not in known):
                        what = f"{others} of <{child.tag}>"
                        acts = child.tag in ("axis", "mimic")
                        yield (f"{what} of joint", own) if acts else (what, None)


def _switched(element: Element, link: str) -> Iterator[tuple[str, str | None]]:
    """What is said of a link in one word, under <link> or <gazebo>."""
    word = element.text.strip().lower()
    off, on = word in ("false", "0"), word in ("true", "1")
    if (element.tag == "gravity" and off) or (element.tag == "turnGravityOff" and on):
        yield "no gravity of link", link
    if element.tag in ("kinematic", "static") and on:
        yield f"<{element.tag}> of link", link


def _of_gazebo(gazebo: Element, own: str) -> Iterator[tuple[str, str | None]]:
    for child in gazebo.children:
        yield from _switched(child, own)
        tag = child.tag.partition(":")[0]
        if tag in ("joint", "link"):
            yield f"{tag} in <gazebo>", child.attrib.get("name", "")
        elif tag in _SPRINGS:
            yield f"<{tag}> of", own


def _of_transmission(element: Element, own: str) -> Iterator[tuple[str, str | None]]:
    parts = list(_below(element))
    if any(part.tag.lower().endswith("inertia") for part in parts):
        yield "rotor inertia of <transmission>", own
    kinds = [element.attrib.get("type", ""), *(p.text.strip() for p in parts if p.tag == "type")]
    joints = {part.attrib.get("name") for part in parts if part.tag == "joint"}
    if any(kind and "simple" not in kind.lower() for kind in kinds) or len(joints) > 1:
        yield "coupling <transmission>", None  # of actuators; efforts are those of joints


def _below(element: Element) -> Iterator[Element]:
    for child in element.children:
        yield child
        yield from _below(child)
