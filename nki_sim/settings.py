"""What a whole process decides once: the version of NKI that the simulator speaks."""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = ("0.6", "0.7")


@dataclass
class Settings:
    nki_version: str = "0.7"

    def at_least(self, version: str) -> bool:
        return VERSIONS.index(self.nki_version) >= VERSIONS.index(version)


settings = Settings()
