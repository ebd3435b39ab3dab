from batchsched.framework.nodes.assumed_volumes import AssumedClaim, AssumedVolumes


def test_promises_stand_until_they_are_taken_back():
    assumed = AssumedVolumes()
    assumed.assume("default/x", AssumedClaim((("v", "default/c"),), (("default/d", "n"),)))
    assumed.assume("default/y", AssumedClaim((("w", "default/e"),)))
    assert assumed.claim_of == {"v": "default/c", "w": "default/e"}
    assert assumed.node_of == {"default/d": "n"}
    assert assumed.of("default/y") == AssumedClaim((("w", "default/e"),))
    assert assumed.of("default/nobody") == AssumedClaim()
    assumed.revert("default/x")
    assumed.revert("default/x")
    assumed.revert("default/nobody")
    assert (assumed.claim_of, assumed.node_of) == ({"w": "default/e"}, {})


def test_promises_are_taken_over_of_pods_whose_reservation_stands():
    before, after = AssumedVolumes(), AssumedVolumes()
    before.assume("default/x", AssumedClaim((("v", "default/c"),), (("default/d", "n"),)))
    before.assume("default/y", AssumedClaim((("w", "default/e"),)))
    after.take_over(before, {"default/x"}.__contains__)
    assert (after.claim_of, after.node_of) == ({"v": "default/c"}, {"default/d": "n"})
    assert after.of("default/x") == before.of("default/x")
