# SPDX-License-Identifier: Apache-2.0
# Loaded by chains.rb again and again: code of a file, of a module and of a class.
module Loaded
  class Thing
    leaf(:loaded)
  end
end
