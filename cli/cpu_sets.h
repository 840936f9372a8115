// SPDX-License-Identifier: Apache-2.0
// Which CPUs each rank of `kiln run` gets. Reads the machine's topology; pins nothing itself.
#pragma once

#include <vector>

namespace kiln::cli {

/// The CPUs that this process may run on, those of one core next to each other, core after core.
/// Throws: io, when the system does not say.
std::vector<int> usable_cpus();

/// Element r is what rank r gets of `cpus`: disjoint runs of equal length (give or take one), or where there
/// are more ranks than CPUs, one CPU that it shares with its neighbours.
std::vector<std::vector<int>> share_cpus(const std::vector<int>& cpus, int ranks);

}  // namespace kiln::cli
