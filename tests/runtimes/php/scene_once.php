<?php
// SPDX-License-Identifier: Apache-2.0
// Included by scene.php.
return (static function () {
    return spin();
})();
