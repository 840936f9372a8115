// SPDX-License-Identifier: Apache-2.0
// The store of ranks that are processes: rank 0 serves it over gRPC, the others connect. gRPC itself is in
// libkiln_rpc.so (runtime/rpc), opened by the first call of either function and never before.
//
// A store does not survive fork(): every call in the child throws unsupported, until it execs. Whoever
// reaches the port can read and write the store; it has no password.
#pragma once

#include <memory>
#include <string>

#include "runtime/store.h"

namespace kiln {

/// A store served by this process, and where.
struct ServedStore {
  std::shared_ptr<Store> store;  ///< as rank 0 sees it; the service ends with it
  int port = 0;                  ///< the port that was bound
};

/// Serves the store of a world of `size` ranks on `port` (0: any free one) of this host's address `bind`
/// (empty: of all its interfaces), and joins it as rank 0. leave() of this store waits until all other ranks
/// that joined have left or are lost, for at most 5 seconds, since their store ends with it. Throws:
/// unsupported, where gRPC is not built in or libkiln_rpc.so is not found; comm, if the port is in use.
ServedStore serve_store(int port, int size, const std::string& bind = "");

/// The store that rank 0 serves at `address` (a name or a number) and `port`, as `rank` of `size` sees it.
/// Tries again until `timeout` has passed, since rank 0 may come later. A rank that ends or disconnects
/// without leave() is lost at once; one whose host falls silent, within a minute. When rank 0 is lost or has
/// left, every call but lost() and leave() throws comm. Throws: unsupported as serve_store(); comm, if
/// nothing answers there, if `rank` is taken, or if the world there has another size.
std::shared_ptr<Store> connect_store(const std::string& address, int port, int rank, int size,
                                     Seconds timeout);

}  // namespace kiln
