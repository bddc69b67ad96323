"""Documents that are no XML, no URDF, or an attack on whoever reads them; with each a part of the
message that refuses it.
"""

from __future__ import annotations

from hostile.robots import VALID, changed

LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
DOCUMENTS = {  # the long ones are made when their test runs
    "billion laughs": (
        f'<!DOCTYPE robot [<!ENTITY l0 "ha">{LAUGHS}]><robot name="&l11;"/>',
        "line 1: a DOCTYPE",
    ),
    "quadratic blowup": (
        lambda: f'<!DOCTYPE r [<!ENTITY a "{"a" * 100_000}">]><robot name="{"&a;" * 100_000}"/>',
        "delete the declaration",
    ),
    "external entity": (
        '<!DOCTYPE r [<!ENTITY e SYSTEM "file:///etc/passwd">]><robot name="r">&e;</robot>',
        "refused for safety",
    ),
    "external entity over the network": (
        '<!DOCTYPE r [<!ENTITY e SYSTEM "http://127.0.0.1:9/x">]><robot name="r">&e;</robot>',
        "DOCTYPE",
    ),
    "parameter entity": (
        '<!DOCTYPE r [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><robot name="r"/>',
        "DOCTYPE",
    ),
    "recursive entity": (
        '<!DOCTYPE r [<!ENTITY a "&b;"><!ENTITY b "&a;">]><robot name="&a;"/>',
        "DOCTYPE",
    ),
    "attribute defaults": (
        '<!DOCTYPE robot [<!ATTLIST robot name CDATA "r">]><robot><link name="a"/></robot>',
        "DOCTYPE",
    ),
    "harmless doctype": (
        '<!DOCTYPE robot>\n<robot name="r"><link name="a"/></robot>',
        "delete the declaration",
    ),
    "doctype in utf-16": (
        '<!DOCTYPE r [<!ENTITY a "b">]><robot name="&a;"/>'.encode("utf-16"),
        "DOCTYPE",
    ),
    "undefined entity": (
        '<robot name="r">\n<link name="&nbsp;"/></robot>',
        "line 2, column 1: an entity",
    ),
    "nested 100,000 deep": (lambda: "<robot>" * 100_000, "64 deep"),
    "nested inside of what is ignored": (
        f'<robot name="r"><link name="a"/><gazebo>{"<a>" * 64}{"</a>" * 64}</gazebo></robot>',
        "64 deep",
    ),
    "too many elements": (
        lambda: f'<robot name="r"><link name="a"/>{"<a/>" * 1_000_000}</robot>',
        "1,000,000 elements",
    ),
    "larger than 64 MB": (lambda: "<robot>" + " " * (64 << 20), "64 MB"),
    "larger than 64 MB once encoded": (lambda: "<robot>" + "€" * (30 << 20), "64 MB"),
    "long comment": (
        lambda: f'<robot name="r"><link name="a"/><!--{"-x" * (1 << 20)}--></robot>',
        "longer than 1 MB",
    ),
    "long attribute": (
        lambda: f'<robot name="{"x" * (3 << 20)}"><link name="a"/></robot>',
        "longer than 1 MB",
    ),
    "half a million attributes": (
        lambda: "<robot" + "".join(f" a{i}=''" for i in range(500_000)) + "/>",
        "longer than 1 MB",
    ),
    "long text that ends too soon": (
        lambda: '<robot name="r">' + "x" * (10 << 20),
        "is the file complete?",
    ),
    "truncated": (VALID[: VALID.index("<mimic")], "is the file complete?"),
    "truncated in a tag": (VALID[: VALID.index('name="wrist"')], "unclosed token"),
    "unclosed element": ('<robot name="r"><link name="a">', "is the file complete?"),
    "mismatched tags": ('<robot name="r">\n <link name="a"></robot>', "line 2, column 19"),
    "two roots": (VALID + '<robot name="b"/>', "a single <robot>"),
    "text after the root": (VALID + "stop", "after the end of the root"),
    "attribute twice": ('<robot name="r" name="s"/>', "given twice"),
    "attribute without quotes": ("<robot name=r/>", "line 1, column 13"),
    "bare ampersand": ('<robot name="a & b"/>', "not well-formed"),
    "less-than in an attribute": ('<robot name="a<b"/>', "not well-formed"),
    "NUL in text": ('<robot name="r">\0</robot>', "not well-formed"),
    "NUL bytes": (b"\0" * 1000, "line 1, column 1"),
    "NUL by reference": ('<robot name="&#0;"/>', "reference to invalid character"),
    "control character": ('<robot name="\x1b[31m"/>', "line 1, column 14"),
    "lone surrogate": (
        '<robot name="r">\n<link name="\ud800"/></robot>',
        "line 2: the text holds a lone surrogate",
    ),
    "empty bytes": (b"", "empty"),
    "white space": (b" \n\t ", "empty"),
    "only a declaration": ('<?xml version="1.0"?>', "is the file complete?"),
    "only a comment": ("<!-- robot -->", "is the file complete?"),
    "binary": (bytes(range(256)) * 100, "not well-formed"),
    "ELF": (b"\x7fELF\x02\x01\x01" + bytes(100), "line 1, column 1"),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(64), "line 1, column 1"),
    "json": (b'{"robot": {}}', "line 1, column 1"),
    "invalid utf-8": (b'<robot name="\xff\xfe"/>', "saved as UTF-8"),
    "overlong utf-8": (b'<robot name="\xc0\xaf"/>', "saved as UTF-8"),
    "utf-16 said to be utf-8": (
        '<?xml version="1.0" encoding="utf-8"?><robot name="r"/>'.encode("utf-16"),
        "save the file as UTF-8",
    ),
    "utf-8 said to be utf-16": (
        b'<?xml version="1.0" encoding="utf-16"?><robot name="r"/>',
        "save the file as UTF-8",
    ),
    "half of utf-16": ('<robot name="r"/>'.encode("utf-16")[:-3], "not well-formed"),
    "utf-32": ('<robot name="r"/>'.encode("utf-32"), "UTF-8"),
    "unknown encoding": (
        b'<?xml version="1.0" encoding="no-such"?><robot name="r"/>',
        "encoding 'no-such'",
    ),
    "codec that is no encoding": (
        b'<?xml version="1.0" encoding="zlib_codec"?><robot name="r"/>',
        "encoding 'zlib_codec'",
    ),
    "utf-7": (b'<?xml version="1.0" encoding="utf-7"?>+ADw-robot/+AD4-', "encoding 'utf-7'"),
    "broken declaration": ('<?xml version="9.9" bad?><robot name="r"/>', "line 1"),
    "unexpanded macro": (
        changed(
            '<link name="base"/>', '<xacro:base_link xmlns:xacro="http://ros.org/wiki/xacro"/>'
        ),
        "run xacro first",
    ),
    "macro under another prefix": (
        '<robot name="r" xmlns:x="http://www.ros.org/wiki/xacro"><x:macro/></robot>',
        "run xacro first",
    ),
    "macro without its namespace": (
        '<robot name="r"><gazebo><xacro:if value="1"/></gazebo></robot>',
        "run xacro first",
    ),
    "SDF": ('<sdf version="1.7"/>', "no <model>"),
    "HTML": ("<html><body/></html>", "root element is <html>"),
    "robot in the wrong case": ('<Robot name="r"/>', "starts with <robot"),
}


def document(case: str):
    source = DOCUMENTS[case][0]
    return source() if callable(source) else source
