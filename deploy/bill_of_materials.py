#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a package is made of, as SPDX 2.3 in JSON (https://spdx.github.io/spdx-spec/v2.3/).

  bill_of_materials.py --version=VERSION --commit=COMMIT < LIST

LIST has one line for each part of another project: Debian's package, its version, its architecture, and
"linked" (its library is in the package) or "compiled" (its headers are in our programs). Licences are
as Debian has them: the files in licences/.
"""

import argparse
import datetime
import hashlib
import json
import os
import sys

OWN_ID = "SPDXRef-lodestar"
RELATIONSHIPS = {"linked": "DYNAMIC_LINK", "compiled": "STATIC_LINK"}


def spdx_id(name):
    return "SPDXRef-" + "".join(c if c.isalnum() or c in ".-" else "-" for c in name)


def created(environment):
    """When, in UTC; SOURCE_DATE_EPOCH (https://reproducible-builds.org) takes the clock's place."""
    epoch = environment.get("SOURCE_DATE_EPOCH")
    time = (
        datetime.datetime.now(datetime.timezone.utc)
        if epoch is None
        else datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc)
    )
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def read_parts(lines):
    """[(package, version, architecture, relationship)], sorted; ValueError names a line that is none."""
    parts = set()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) != 4 or words[3] not in RELATIONSHIPS:
            raise ValueError(
                f"line {number} of the list is {line.strip()!r}; wanted are a package, its version, "
                f"its architecture and one of {', '.join(RELATIONSHIPS)}"
            )
        parts.add(tuple(words))
    return sorted(parts)


def package(name, version, licence, **more):
    return {
        "name": name,
        "SPDXID": spdx_id(name),
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        **more,
    }


def bill_of_materials(version, commit, parts, time):
    packages = [package("lodestar", version, "NOASSERTION", sourceInfo=f"commit {commit}")]
    relationships = [("SPDXRef-DOCUMENT", "DESCRIBES", OWN_ID)]
    for name, part_version, architecture, how in parts:
        purl = f"pkg:deb/debian/{name}@{part_version.replace('+', '%2B')}?arch={architecture}"
        reference = {
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": purl,
        }
        packages.append(
            package(
                name,
                part_version,
                "NOASSERTION",
                comment=f"licences: licences/{name}",
                externalRefs=[reference],
            )
        )
        relationships.append((OWN_ID, RELATIONSHIPS[how], spdx_id(name)))
    content = json.dumps([version, commit, parts, time]).encode()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"lodestar-{version}",
        "documentNamespace": f"urn:lodestar:{version}:{hashlib.sha256(content).hexdigest()}",
        "creationInfo": {"created": time, "creators": ["Tool: bill_of_materials.py"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
            for a, kind, b in relationships
        ],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", required=True)
    arguments = parser.parse_args()
    try:
        parts = read_parts(sys.stdin)
    except ValueError as error:
        sys.exit(f"bill_of_materials.py: {error}")
    bill = bill_of_materials(arguments.version, arguments.commit, parts, created(os.environ))
    print(json.dumps(bill, indent=1))


if __name__ == "__main__":
    main()
