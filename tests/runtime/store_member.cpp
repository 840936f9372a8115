// SPDX-License-Identifier: Apache-2.0
// A process for store_grpc_test: store_member ACTION PORT RANK SIZE. Rank 0 serves. Says on stdout what it
// has done, one line each; errors too.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "runtime/store_grpc.h"

namespace {

using kiln::Seconds;

std::shared_ptr<kiln::Store> join(int port, int rank, int size) {
  if (rank > 0) return kiln::connect_store("127.0.0.1", port, rank, size, Seconds(20));
  const auto served = kiln::serve_store(port, size, "127.0.0.1");
  std::cout << "port " << served.port << std::endl;
  return served.store;
}

// A child that uses what it inherited, and ends as programs do.
void fork_with(const std::shared_ptr<kiln::Store>& store) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      store->get("k");
    } catch (const std::exception& e) {
      std::cout << e.what() << std::endl;
    }
    std::exit(0);
  }
  waitpid(child, nullptr, 0);
  store->leave();
}

void act(const std::string& action, const std::shared_ptr<kiln::Store>& store) {
  // Destroyed after main(), by which time gRPC's own statics may be gone.
  static std::shared_ptr<kiln::Store> last;
  if (action == "leave") store->leave();
  if (action == "static") last = store;
  if (action == "static_leave") (last = store)->leave();
  if (action == "exit") std::exit(0);
  if (action == "fork") fork_with(last = store);
  if (action == "throw") throw std::runtime_error("thrown out of main");
  if (action == "go" && store->wait("go", Seconds(60))) store->leave();
  if (action == "exit_later" && store->wait("go", Seconds(60))) std::exit(0);
  if (action == "wait") store->wait("never", Seconds(60));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string action = argv[1];
  try {
    const auto store = join(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
    std::cout << "joined" << std::endl;
    act(action, store);
  } catch (const std::exception& e) {
    std::cout << e.what() << std::endl;
    if (action == "throw") throw;
    return 1;
  }
  return 0;
}
