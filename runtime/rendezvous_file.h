// SPDX-License-Identifier: Apache-2.0
// How ranks of one machine find rank 0 where nobody says on which port it is: a file in the system's
// temporary folder. It is private to the user, and the file of a rank 0 that is gone is never believed.
#pragma once

#include <optional>
#include <string>

namespace kiln {

/// Where rank 0 of a world is, while it lives: removed at the end.
class RendezvousFile {
 public:
  /// Replaces what `world` may have left. Throws: io, when the folder cannot be written.
  RendezvousFile(const std::string& world, int port, const std::string& token);
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

 private:
  const std::string path_;
};

/// What rank 0 has published.
struct Published {
  int port = 0;
  std::string token;  ///< of this very world
};

/// Nothing while no living process of this user has published `world`.
std::optional<Published> read_rendezvous_file(const std::string& world);

/// Of the file of `world`, for messages.
std::string rendezvous_path(const std::string& world);

}  // namespace kiln
