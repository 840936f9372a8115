// SPDX-License-Identifier: Apache-2.0
// How both ends of a connection notice that the other's host fell silent. A process that ends shows at once.
#pragma once

#include <grpc/grpc.h>

namespace kiln::rpc {

/// A setting of gRPC.
struct ChannelSetting {
  const char* name;
  int value;
};
/// Asked after 15 s without a word, given up 30 s later.
inline constexpr ChannelSetting kKeepalive[] = {
    {GRPC_ARG_KEEPALIVE_TIME_MS, 15'000},
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 30'000},
    {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
    {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000},
    {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
};

}  // namespace kiln::rpc
