"""`RegionRegistry`: the regions that clients have registered, by name.

Owns the names and the bound of their number. What may be done with a region is the region's.
"""

from __future__ import annotations

from naiad.errors import Code, InferenceServerError, invalid_argument, not_found, unavailable
from naiad.memory.client_regions.device_region import DeviceRegion
from naiad.memory.client_regions.region import Discard, Region

AnyRegion = Region | DeviceRegion
# Each takes up to two descriptors, which connections need too.
MOST_REGIONS = 1024


class RegionRegistry:
    """Loop thread only. `discard` closes large regions, off the loop."""

    def __init__(self, discard: Discard | None = None, most_regions: int = MOST_REGIONS) -> None:
        self._discard = discard
        self._regions: dict[str, AnyRegion] = {}
        self._reserved: set[str] = set()
        self._most_regions = most_regions

    def register(self, name: str, key: str, offset: int, size_bytes: int) -> None:
        """Open the object `key` and know `size_bytes` bytes from `offset` in it as `name`.

        Raises ALREADY_EXISTS for a name that is in use, UNAVAILABLE when there are too many, and as `Region`.
        """
        self._check_name(name)
        self._regions[name] = Region(name, key, offset, size_bytes, self._discard)

    def reserve(self, name: str) -> None:
        """Keep `name` for a region that is being opened, until `add` or `give_up`. Raises as `register` for the name."""
        self._check_name(name)
        self._reserved.add(name)

    def add(self, region: DeviceRegion) -> None:
        """Know `region` by its name, which was reserved; its making user is from here on the registry."""
        self._reserved.remove(region.name)
        self._regions[region.name] = region

    def give_up(self, name: str) -> None:
        """Free a name that was reserved."""
        self._reserved.remove(name)

    def unregister(self, name: str, kind: type[AnyRegion] | None = None) -> None:
        """Forget a region, if there is one of this name and kind; requests that use it go on doing so."""
        region = self._regions.get(name)
        if region is not None and (kind is None or isinstance(region, kind)):
            del self._regions[name]
            region.release()

    def unregister_all(self, kind: type[AnyRegion] | None = None) -> None:
        """Forget all regions, of this kind."""
        for name in list(self._regions):
            self.unregister(name, kind)

    def find(self, name: str) -> AnyRegion:
        """Return the region of this name, which stays the registry's: `hold` it for longer use. Raises NOT_FOUND."""
        region = self._regions.get(name)
        if region is None:
            raise not_found(f"Unable to find shared memory region: '{name[:256]}'")
        return region

    def all(self) -> list[AnyRegion]:
        """Return all regions, in the order of their registration."""
        return list(self._regions.values())

    def _check_name(self, name: str) -> None:
        if not name:
            raise invalid_argument("the name of a shared memory region must not be empty")
        if name in self._regions or name in self._reserved:
            raise InferenceServerError(Code.ALREADY_EXISTS, f"shared memory region '{name}' already in manager")
        if len(self._regions) + len(self._reserved) >= self._most_regions:
            raise unavailable(
                f"failed to register shared memory region '{name}': {self._most_regions} regions are registered, the most that "
                "may be, unregister some"
            )
