"""A valid robot, and the ways to damage it; with each a part of the message that refuses it."""

from __future__ import annotations

INERTIA = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")


def link(name: str, mass: str, tenth: str) -> str:
    return f"""<link name="{name}">
    <inertial>
      <origin xyz="0 {tenth} 0.1" rpy="0 0 {tenth}"/>
      <mass value="{mass}"/>
      <inertia ixx="{tenth}1" ixy="0" ixz="0" iyy="{tenth}2" iyz="0" izz="{tenth}3"/>
    </inertial>
    <visual><geometry><box size="0.1 {tenth} 0.3"/></geometry><material name="grey"/></visual>
  </link>"""


# every number and line that a case replaces stands here once
VALID = f"""<?xml version="1.0"?>
<robot name="arm">
  <material name="grey"><color rgba="0.5 0.5 0.5 1"/></material>
  <link name="base"/>
  {link("upper", "1.1", "0.01")}
  {link("fore", "2.2", "0.02")}
  {link("hand", "3.3", "0.03")}
  {link("finger", "4.4", "0.04")}
  {link("ball", "5.5", "0.05")}
  <link name="tip"/>
  <joint name="shoulder" type="revolute">
    <parent link="base"/>
    <child link="upper"/>
    <origin xyz="0 0 0.4" rpy="0 0.2 0"/>
    <axis xyz="0 0 1"/>
    <limit lower="-1.5" upper="1.6" velocity="7" effort="8"/>
    <dynamics damping="0.5" friction="0.25" armature="0.125"/>
  </joint>
  <joint name="elbow" type="prismatic">
    <parent link="upper"/><child link="fore"/>
    <axis xyz="0 2 0"/>
  </joint>
  <joint name="wrist" type="continuous"><parent link="fore"/><child link="hand"/></joint>
  <joint name="knuckle" type="prismatic">
    <parent link="hand"/><child link="finger"/>
    <mimic joint="elbow" multiplier="-2" offset="0.75"/>
  </joint>
  <joint name="throw" type="floating"><parent link="hand"/><child link="ball"/></joint>
  <joint name="end" type="fixed"><parent link="hand"/><child link="tip"/></joint>
</robot>
"""


def changed(*replacements: str) -> str:
    """VALID with the 1st text replaced by the 2nd, the 3rd by the 4th, …"""
    text = VALID
    for old, new in zip(replacements[::2], replacements[1::2], strict=True):
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the valid robot"
        text = text.replace(old, new)
    return text


NUMBERS = {  # place: (what stands there, what is written instead, whose number it is)
    "mass": ('<mass value="1.1"/>', '<mass value="{}"/>', "link 'upper'"),
    "ixx": ('ixx="0.021"', 'ixx="{}"', "link 'fore'"),
    "iyz": ('iyy="0.032" iyz="0"', 'iyy="0.032" iyz="{}"', "link 'hand'"),
    "centre of mass": ('<origin xyz="0 0.04 0.1"', '<origin xyz="0 {} 0.1"', "link 'finger'"),
    "position": ('<origin xyz="0 0 0.4"', '<origin xyz="0 0 {}"', "joint 'shoulder'"),
    "angle": ('rpy="0 0.2 0"', 'rpy="{} 0.2 0"', "joint 'shoulder'"),
    "axis": ('<axis xyz="0 2 0"/>', '<axis xyz="0 {} 0"/>', "joint 'elbow'"),
    "lower": ('lower="-1.5"', 'lower="{}"', "joint 'shoulder'"),
    "velocity": ('velocity="7"', 'velocity="{}"', "joint 'shoulder'"),
    "damping": ('damping="0.5"', 'damping="{}"', "joint 'shoulder'"),
    "armature": ('armature="0.125"', 'armature="{}"', "joint 'shoulder'"),
    "offset": ('offset="0.75"', 'offset="{}"', "joint 'knuckle'"),
}

# nothing that float() takes beyond plain decimals, and nothing that other languages take
BAD_NUMBERS = [
    "nan",
    "-NaN",
    "inf",
    "-Infinity",
    "1e999",
    "0x10",
    "1_0",
    "1e",
    "e5",
    ".",
    "+",
    "--1",
    "1d0",
    "1f",
    "1,5",
    "one",
    "½",
    "１",
    "٣",
]
BAD_NUMBERS += ["", " ", "1 2", "1;2", "${pi/2}", "$(arg x)", "1\u200b", "0" * 400 + "x", "true"]

MALFORMED = {
    "robot without a name": ('<robot name="arm">', "<robot>", 'write <robot name="…">'),
    "link without a name": ('<link name="base"/>', "<link/>", "robot 'arm': <link> has no name"),
    "link with a blank name": ('<link name="base"/>', '<link name="  "/>', "<link> has no name"),
    "link with an endless name": (
        '<link name="base"/>',
        f'<link name="{"b" * 501}"/>',
        "longer than 500 characters",
    ),
    "joint without a name": ('<joint name="wrist"', "<joint", "robot 'arm': <joint> has no name"),
    "link twice": (
        '<link name="tip"/>',
        '<link name="tip"/><link name="base"/>',
        "link 'base': there already is a link of that name, on line 4",
    ),
    "joint twice": ('name="wrist"', 'name="elbow"', "joint 'elbow': there already is"),
    "no type": ('name="wrist" type="continuous"', 'name="wrist"', "joint 'wrist': it has no type"),
    "empty type": ('type="continuous"', 'type=""', "joint 'wrist': it has the type ''"),
    "unknown type": ('type="continuous"', 'type="hinge"', "use one of revolute, continuous"),
    "type in the wrong case": ('type="continuous"', 'type="Continuous"', "joint 'wrist'"),
    "helical": ('type="continuous"', 'type="helical"', "come from rg.Builder"),
    "spherical": ('type="continuous"', 'type="spherical"', "come from rg.Builder"),
    "no parent": ('<parent link="base"/>', "", "joint 'shoulder': <joint> has no <parent>"),
    "no child": ('<child link="upper"/>', "", "joint 'shoulder': <joint> has no <child>"),
    "parent as text": (
        '<parent link="base"/>',
        "<parent>base</parent>",
        "joint 'shoulder': <parent> has no link",
    ),
    "child without link": (
        '<child link="upper"/>',
        "<child/>",
        "joint 'shoulder': <child> has no link",
    ),
    "two parents in a joint": (
        '<parent link="base"/>',
        '<parent link="base"/><parent link="tip"/>',
        "<parent> is already given on line",
    ),
    "two origins": (
        '<axis xyz="0 0 1"/>',
        '<axis xyz="0 0 1"/><origin/>',
        "joint 'shoulder': <origin> is already given",
    ),
    "two limits": (
        '<axis xyz="0 0 1"/>',
        '<axis xyz="0 0 1"/><limit/>',
        "joint 'shoulder': <limit> is already given",
    ),
    "two inertials": (
        '<link name="base"/>',
        '<link name="base"><inertial/><inertial/></link>',
        "link 'base': <inertial> is already given",
    ),
    "two masses": (
        '<mass value="1.1"/>',
        '<mass value="1.1"/><mass value="1"/>',
        "link 'upper': <mass> is already given",
    ),
    "inertial without mass": ('<mass value="1.1"/>', "", "link 'upper': <inertial> has no <mass>"),
    "mass as text": (
        '<mass value="1.1"/>',
        "<mass>1.1</mass>",
        "link 'upper': <mass> has no value",
    ),
    "inertial without inertia": (
        '<inertia ixx="0.021" ixy="0" ixz="0" iyy="0.022" iyz="0" izz="0.023"/>',
        "",
        "link 'fore': <inertial> has no <inertia>",
    ),
    "inertia without izz": (
        'iyy="0.022" iyz="0" izz="0.023"',
        'iyy="0.022" iyz="0"',
        "link 'fore': <inertia> has no izz",
    ),
    "inertia without ixy": (
        'ixx="0.021" ixy="0"',
        'ixx="0.021"',
        "link 'fore': <inertia> has no ixy",
    ),
    "axis without xyz": ('<axis xyz="0 0 1"/>', "<axis/>", "joint 'shoulder': <axis> has no xyz"),
    "axis as three attributes": (
        '<axis xyz="0 0 1"/>',
        '<axis x="0" y="0" z="1"/>',
        "joint 'shoulder': <axis> has no xyz",
    ),
    "two numbers for an axis": (
        '<axis xyz="0 0 1"/>',
        '<axis xyz="0 1"/>',
        "needs 3 numbers separated by spaces, but holds 2",
    ),
    "four numbers for a position": (
        'xyz="0 0 0.4"',
        'xyz="0 0 0.4 1"',
        "needs 3 numbers separated by spaces, but holds 4",
    ),
    "commas": ('xyz="0 0 0.4"', 'xyz="0,0,0.4"', "separated by spaces"),
    "two rotations": (
        'rpy="0 0.2 0"',
        'rpy="0 0.2 0" quat_xyzw="0 0 0 1"',
        "joint 'shoulder': <origin> has both",
    ),
    "quaternion of zeros": (
        'rpy="0 0.2 0"',
        'quat_xyzw="0 0 0 0"',
        "joint 'shoulder': <origin> quat_xyzw has no direction",
    ),
    "quaternion of three": ('rpy="0 0.2 0"', 'quat_xyzw="0 0 0"', "needs 4 numbers"),
    "position beyond the universe": (
        'xyz="0 0 0.4"',
        'xyz="0 0 1e51"',
        "joint 'shoulder': <origin> xyz='0 0 1e51' is too large",
    ),
    "negative damping": (
        'damping="0.5"',
        'damping="-0.5"',
        "joint 'shoulder': <dynamics> damping='-0.5' is negative",
    ),
    "negative friction": (
        'friction="0.25"',
        'friction="-1"',
        "joint 'shoulder': <dynamics> friction='-1' is negative",
    ),
    "negative armature": (
        'armature="0.125"',
        'armature="-1e-9"',
        "joint 'shoulder': <dynamics> armature='-1e-9' is negative",
    ),
    "mimic of nothing": ('<mimic joint="elbow"', "<mimic", "joint 'knuckle': <mimic> has no joint"),
}

TIP = '<link name="tip"/>'
TREES = {
    "cycle through the root": (
        TIP,
        TIP + '<joint name="back" type="fixed"><parent link="tip"/><child link="base"/></joint>',
        "cycle",
    ),
    "cycle beside the root": (
        TIP,
        TIP
        + '<link name="x"/><link name="y"/><joint name="xy" type="fixed"><parent link="x"/><child'
        ' link="y"/></joint><joint name="yx" type="fixed"><parent link="y"/><child'
        ' link="x"/></joint>',
        "cycle",
    ),
    "link joined to itself": (
        '<parent link="fore"/><child link="hand"/>',
        '<parent link="hand"/><child link="hand"/>',
        "'wrist'",
    ),
    "two root links": (TIP, TIP + '<link name="island"/>', "'island'"),
    "link with two parents": (
        TIP,
        TIP + '<joint name="x" type="fixed"><parent link="base"/><child link="ball"/></joint>',
        "'ball'",
    ),
    "unknown parent": ('<parent link="base"/>', '<parent link="bas"/>', "'base'"),
    "unknown child": ('<child link="upper"/>', '<child link="uper"/>', "'upper'"),
    "a joint as parent": ('<parent link="base"/>', '<parent link="elbow"/>', "'shoulder'"),
    "link in another case": ('<parent link="base"/>', '<parent link="BASE"/>', "'shoulder'"),
    "mimic of an unknown joint": ('<mimic joint="elbow"', '<mimic joint="elbov"', "'elbow'"),
    "mimic of a link": ('<mimic joint="elbow"', '<mimic joint="hand"', "'knuckle'"),
    "mimic of itself": ('<mimic joint="elbow"', '<mimic joint="knuckle"', "'knuckle'"),
    "mimics in a cycle": ('<axis xyz="0 2 0"/>', '<mimic joint="knuckle"/>', "cycle"),
    "mimic of a floating joint": (
        '<mimic joint="elbow"',
        '<mimic joint="throw"',
        "'throw', which is floating",
    ),
    "mimic of a fixed joint": (
        '<mimic joint="elbow"',
        '<mimic joint="end"',
        "'end', which is fixed",
    ),
    "floating joint that mimics": (
        '<parent link="hand"/><child link="ball"/>',
        '<parent link="hand"/><child link="ball"/><mimic joint="elbow"/>',
        "'throw' is floating and cannot mimic",
    ),
    "planar joint that mimics": (
        'name="knuckle" type="prismatic"',
        'name="knuckle" type="planar"',
        "'knuckle' is planar and cannot mimic",
    ),
    "zero axis": ('<axis xyz="0 2 0"/>', '<axis xyz="0 0 -0.0"/>', "'elbow'"),
    "vanishing axis": ('<axis xyz="0 2 0"/>', '<axis xyz="0 1e-200 0"/>', "'elbow'"),
}

BODIES = {
    "negative mass": ('<mass value="1.1"/>', '<mass value="-1.1"/>', "'upper'"),
    "massless leaf": ('<mass value="4.4"/>', '<mass value="0"/>', "'finger'"),
    "massless leaf without inertia": (
        link("finger", "4.4", "0.04"),
        '<link name="finger"/>',
        "'finger'",
    ),
    "massless floating body": (link("ball", "5.5", "0.05"), '<link name="ball"/>', "'ball'"),
    "mass without inertia": (
        'ixx="0.021" ixy="0" ixz="0" iyy="0.022" iyz="0" izz="0.023"',
        " ".join(f'{i}="0"' for i in INERTIA),
        "'fore'",
    ),
    "negative moment": ('ixx="0.021"', 'ixx="-0.021"', "'fore'"),
    "moments that break the triangle": ('izz="0.023"', 'izz="0.23"', "triangle"),
    "products larger than moments": ('ixx="0.021" ixy="0"', 'ixx="0.021" ixy="0.022"', "'fore'"),
    "moments of a point far away": (
        '<origin xyz="0 0.03 0.1"',
        '<origin xyz="0 0.03 1e49"',
        "'hand'",
    ),
}

# limits that cannot be: old, new, what is said
LIMITS = {
    "lower above upper": (
        'lower="-1.5"',
        'lower="1.7"',
        "joint 'shoulder': its lower limit 1.7 is above its upper limit 1.6",
    ),
    "negative velocity limit": (
        'velocity="7"',
        'velocity="-7"',
        "joint 'shoulder': its velocity or effort limit is negative",
    ),
    "negative effort limit": (
        'effort="8"',
        'effort="-8"',
        "joint 'shoulder': its velocity or effort limit is negative",
    ),
}
