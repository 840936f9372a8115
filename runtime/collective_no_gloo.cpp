// SPDX-License-Identifier: Apache-2.0
// Instead of collective_gloo.cpp where Gloo is not built in.
#include "runtime/collective.h"

namespace kiln {

std::shared_ptr<ProcessGroup> make_gloo_group(std::shared_ptr<Store>, const std::string&, int, int,
                                              const std::string&, Seconds) {
  throw Error(ErrorKind::unsupported,
              "make_gloo_group: this Kiln is built without Gloo (install libgloo-dev, configure with "
              "-DKILN_GLOO=ON and build again; ranks that are threads need none)");
}

}  // namespace kiln
