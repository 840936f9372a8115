// SPDX-License-Identifier: Apache-2.0
// What happens when the gRPC library is missing, foreign or outdated, or was never built.
#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/rpc/rpc_abi.h"
#include "runtime/store_grpc.h"

namespace kiln {
namespace KILN_FILE {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "";
}

std::string errors_with(const std::string& library) {
  set_option("KILN_RPC_LIBRARY", library);
  const std::string served = error_of([] { serve_store(0, 2); });
  EXPECT_EQ(error_of([] { connect_store("127.0.0.1", 1, 1, 2, Seconds(0)); }), served);
  set_option("KILN_RPC_LIBRARY", "");
  return served;
}

#ifdef KILN_STALE_RPC

TEST(GrpcLibrary, SaysWhyItCannotBeUsed) {
  EXPECT_EQ(
      errors_with("/nonexistent/libkiln_rpc.so"),
      "unsupported: store: libkiln_rpc.so cannot be opened; tried\n  /nonexistent/libkiln_rpc.so: cannot "
      "open "
      "shared object file: No such file or directory\n(build the target kiln_rpc, or set KILN_RPC_LIBRARY to "
      "its path)");
  EXPECT_EQ(errors_with("libm.so.6"),
            fmt::format(
                "unsupported: store: libm.so.6 belongs to another build of Kiln; got version 0, expected {} "
                "(rebuild it, or unset KILN_RPC_LIBRARY)",
                rpc::kAbiVersion));
  EXPECT_THAT(errors_with(KILN_STALE_RPC),
              ::testing::HasSubstr(fmt::format("got version {}, expected", rpc::kAbiVersion + 1)));
}

#else

TEST(GrpcLibrary, ABuildWithoutItSaysSo) {
  EXPECT_EQ(errors_with(""),
            "unsupported: store: this Kiln is built without gRPC, which ranks in processes of their own need "
            "(install libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler, configure with "
            "-DKILN_GRPC=ON and build again; ranks that are threads need none)");
}

#endif

}  // namespace KILN_FILE
}  // namespace kiln
