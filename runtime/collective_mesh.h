// SPDX-License-Identifier: Apache-2.0
// Collectives of messages between all pairs of ranks (mesh.h), and the errors that say who is missing.
#pragma once

#include <memory>
#include <string>

#include "runtime/collective_queue.h"
#include "runtime/mesh.h"
#include "runtime/store.h"

namespace kiln {

/// The engine of rank mesh->rank(). Keys below `prefix` in the store carry the reasons of failures to ranks
/// that only see connections break. Meets all other ranks once, under `control`. Throws: comm.
std::unique_ptr<CollectiveEngine> make_mesh_engine(const char* backend, std::unique_ptr<Mesh> mesh,
                                                   std::shared_ptr<Store> store, const std::string& prefix,
                                                   const CollectiveControl& control);

}  // namespace kiln
